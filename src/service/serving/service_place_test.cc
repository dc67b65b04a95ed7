#include "service/serving/service_place.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

ProcessFacts process(const std::string& name, const std::string& unit = "",
                     const std::string& container = "") {
  ProcessFacts out;
  out.name = name;
  out.unit = unit;
  out.container = container;
  return out;
}

GpuTenants gpu(int index, std::vector<ProcessFacts> processes) {
  GpuTenants out{.id = {index, "GPU-" + std::to_string(index), "", "a chip"}};
  for (ProcessFacts& each : processes) out.tenants.push_back({.process = std::move(each)});
  return out;
}

TEST(ServicePlace, IsWhereAllThatItNamesMatches) {
  const std::string id = "0123456789abcdef";
  const ServiceSetting service{
      .process = "vllm*", .unit = "vllm.service", .container = id.substr(0, 12)};
  EXPECT_TRUE(is_of(service, {}, process("VLLM::EngineCore", "vllm.service", id)));
  EXPECT_FALSE(is_of(service, {}, process("python3", "vllm.service", id)));
  EXPECT_FALSE(is_of(service, {}, process("VLLM::EngineCore", "other.service", id)));
  EXPECT_FALSE(is_of(service, {}, process("VLLM::EngineCore", "vllm.service", "f" + id)));
  EXPECT_FALSE(is_of({.container = id.substr(0, 12)}, {}, process("a")));
}

TEST(ServicePlace, HasTheGpusOfItsProcessesOrSaysWhyNot) {
  const std::vector<GpuTenants> gpus{gpu(0, {process("train")}),
                                     gpu(1, {process("a"), process("VLLM::Worker_TP0")}),
                                     gpu(2, {process("VLLM::Worker_TP1")})};
  EXPECT_EQ(place_of({.process = "vllm*"}, gpus).gpus, (std::set<std::string>{"GPU-1", "GPU-2"}));
  const auto nowhere = place_of({.process = "sglang*"}, gpus);
  EXPECT_TRUE(nowhere.gpus.empty());
  EXPECT_EQ(nowhere.trouble,
            "no process on a GPU is of it (process sglang*); 4 processes are on GPUs");
}

// Another user's program of that name does not bring its GPU under the promise.
TEST(ServicePlace, OfAUserHasNoOtherUsersProcesses) {
  const Folder folder;
  const std::string users = folder.path() + "/passwd";
  ASSERT_TRUE(write_file_atomically(users, "root:x:0:0::/:\nllm:x:998:998::/:\n").ok());
  ProcessFacts ours = process("VLLM::EngineCore"), theirs = ours, unknown = ours;
  ours.uid = 998, theirs.uid = 1000;
  const std::vector<GpuTenants> gpus{gpu(0, {ours}), gpu(1, {theirs}), gpu(2, {unknown})};
  for (const char* user : {"llm", "998"})
    EXPECT_EQ(place_of({.process = "vllm*", .user = user}, gpus, users).gpus,
              std::set<std::string>{"GPU-0"});
  const auto nobody = place_of({.process = "vllm*", .user = "eve"}, gpus, users);
  EXPECT_TRUE(nobody.gpus.empty());
  EXPECT_EQ(nobody.trouble, "user: " + users + " has no user 'eve'");
}

TEST(ServicePlace, NamesItsGpus) {
  const std::vector<GpuTenants> gpus{gpu(0, {}), gpu(1, {})};
  EXPECT_EQ(place_of({.gpus = "1"}, gpus).gpus, std::set<std::string>{"GPU-1"});
  const auto away = place_of({.gpus = "5"}, gpus);
  EXPECT_TRUE(away.gpus.empty());
  EXPECT_NE(away.trouble.find("5"), std::string::npos);
}

}  // namespace
}  // namespace derate
