#include "simulated.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "core/gpu_id.h"

namespace derate::cli {
namespace {

const std::string kSimulated = std::string(kSimulatedUuid) + "000000000003";

TEST(Simulated, OnlyGpusOfSuchAUuidAreMarked) {
  Json gpus = {{{"index", 0}, {"uuid", kSimulated}},
               {{"index", 1}, {"uuid", "GPU-7f0c1a52-0000-0000-0000-000000000003"}},
               {{"index", 2}},
               7};
  mark_simulated(gpus);
  EXPECT_EQ(gpus[0]["simulated"], true);
  EXPECT_FALSE(gpus[1].contains("simulated"));
  EXPECT_FALSE(gpus[2].contains("simulated"));
  EXPECT_EQ(gpus[3], 7);
}

TEST(Simulated, ATableSaysSoBesideTheIndex) {
  EXPECT_EQ(gpu_cell(3, kSimulated), "3 sim");
  EXPECT_EQ(gpu_cell(3, "GPU-7f0c1a52"), "3");
}

}  // namespace
}  // namespace derate::cli
