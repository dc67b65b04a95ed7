#include "integ/slurm/seen_text.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

TEST(SeenText, IsReadAsItWasWritten) {
  SeenGpus seen;
  SeenGpu gpu;
  gpu.id.index = 3;
  gpu.id.uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  gpu.id.name = "NVIDIA H200";
  gpu.id.pci_bus_id = "00000000:65:00.0";
  gpu.minor = 1;
  seen.gpus = {gpu, gpu};
  seen.gpus[1].minor.reset();
  seen.gpus[1].mig = true;
  seen.silent = {5};
  const auto read = parse_seen(seen_text(seen));
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->gpus.size(), 2u);
  EXPECT_EQ(read->gpus[0].id.uuid, gpu.id.uuid);
  EXPECT_EQ(read->gpus[0].id.name, gpu.id.name);
  EXPECT_EQ(read->gpus[0].id.pci_bus_id, gpu.id.pci_bus_id);
  EXPECT_EQ(read->gpus[0].minor, 1);
  EXPECT_FALSE(read->gpus[0].mig);
  EXPECT_FALSE(read->gpus[1].minor);
  EXPECT_TRUE(read->gpus[1].mig);
  EXPECT_EQ(read->silent, std::vector<int>{5});
}

TEST(SeenText, AnotherTextIsNone) {
  for (const char* const text : {"", "{}", "[]", R"({"gpus":3})", R"({"gpus":[{}]})",
                                 R"({"gpus":[{"index":0}]})", R"({"gpus":[7]})"})
    EXPECT_EQ(parse_seen(text).error().code, Errc::bad_data) << text;
}

}  // namespace
}  // namespace derate
