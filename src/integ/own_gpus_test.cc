#include "integ/own_gpus.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "base/errc_word.h"
#include "integ/test_seen_gpus.h"

namespace derate {
namespace {

using Variables = std::map<std::string, std::string>;

Environment with(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

const std::vector<std::string> kFour{"H200", "H200", "H200", "H200"};

// The node's numbers of the GPUs, as "2 0"; "none"; "-" if no variable is set; or the word of an
// error.
std::string own(const SeenGpus& seen, Variables variables) {
  const auto found = own_gpus([&] { return Result<SeenGpus>(seen); }, with(std::move(variables)));
  if (!found.ok()) return std::string(word_of(found.error().code));
  if (!*found) return "-";
  std::string out;
  for (const std::string& uuid : (*found)->uuids)
    for (int gpu = 0; gpu < 8; ++gpu)
      if (uuid == seen_uuid(gpu)) out += (out.empty() ? "" : " ") + std::to_string(gpu);
  return out.empty() ? "none" : out;
}

TEST(OwnGpus, WhatCudaShowsIsOnesOwn) {
  const SeenGpus all = seen_gpus(kFour);
  EXPECT_EQ(own(all, {{"CUDA_VISIBLE_DEVICES", "2, 0"}}), "2 0");
  EXPECT_EQ(own(all, {{"CUDA_VISIBLE_DEVICES", ""}}), "none");
  EXPECT_EQ(own(all, {{"CUDA_VISIBLE_DEVICES", "0"}, {"SLURM_JOB_GPUS", "1"}}), "0");
  const SeenGpus mixed = seen_gpus({"V100", "H200"});
  EXPECT_EQ(own(mixed, {{"CUDA_VISIBLE_DEVICES", "0"}}), word_of(Errc::invalid_argument));
  EXPECT_EQ(own(mixed, {{"CUDA_VISIBLE_DEVICES", "0"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}), "0");
}

// As driver 580.159.04: cuInit fails, whatever else is set.
TEST(OwnGpus, AnInvalidDeviceOrderHidesAll) {
  const SeenGpus all = seen_gpus(kFour);
  for (const char* order : {"", "pci_bus_id", "x"}) {
    EXPECT_EQ(own(all, {{"CUDA_DEVICE_ORDER", order}}), "none") << order;
    EXPECT_EQ(own(all, {{"CUDA_DEVICE_ORDER", order}, {"SLURM_JOB_GPUS", "1"}}), "none") << order;
    EXPECT_EQ(own(all, {{"CUDA_DEVICE_ORDER", order}, {"CUDA_VISIBLE_DEVICES", seen_uuid(1)}}),
              "none");
  }
  EXPECT_EQ(own(all, {{"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}), "-");
}

// found/field.md, kind B: the job sees only the node's GPU 2, as its GPU 0.
TEST(OwnGpus, AViewHasItsOwnNumbers) {
  const SeenGpus job = seen_gpus({"H200"}, {2});
  EXPECT_EQ(own(job, {{"CUDA_VISIBLE_DEVICES", "0"}, {"SLURM_JOB_GPUS", "2"}}), "2");
  EXPECT_EQ(own(job, {{"SLURM_JOB_GPUS", "2"}}), "2");
  const SeenGpus three = seen_gpus({"H200", "H200", "H200"}, {1, 4, 6});
  EXPECT_EQ(own(three, {{"SLURM_JOB_GPUS", "1,4,6"}}), "1 4 6");
  EXPECT_EQ(own(three, {{"SLURM_JOB_GPUS", "0-2"}}), "1 4 6");
  EXPECT_EQ(own(three, {{"SLURM_JOB_GPUS", "4,6"}}), word_of(Errc::invalid_argument));
  EXPECT_EQ(own(three, {{"CUDA_VISIBLE_DEVICES", "0,2"}}), "1 6");
}

TEST(OwnGpus, SlurmIsAskedNextAndAStepBeforeItsJob) {
  const SeenGpus all = seen_gpus(kFour);
  EXPECT_EQ(own(all, {{"SLURM_JOB_GPUS", "0, 1-3"}}), "0 1 2 3");
  const SeenGpus one = seen_gpus({"H200"}, {3});
  EXPECT_EQ(own(one, {{"SLURM_JOB_GPUS", "x"}, {"SLURM_STEP_GPUS", "1"}}), "3");
  EXPECT_EQ(own(all, {{"SLURM_JOB_GPUS", ""}}), "-");
  for (const char* wrong : {"3-2", "0-99999999", "all", "gpu:2", "7"})
    EXPECT_EQ(own(all, {{"SLURM_JOB_GPUS", wrong}}), word_of(Errc::invalid_argument)) << wrong;
}

// 4 GPUs without a device cgroup. A GPU of the job does not answer, so as many GPUs answer as the
// job has, but one of them belongs to another job.
TEST(OwnGpus, AGpuThatDoesNotAnswerIsNotCountedAsAway) {
  SeenGpus hung = seen_gpus({"H200", "H200", "H200"});
  hung.silent = {3};
  EXPECT_EQ(own(hung, {{"SLURM_JOB_GPUS", "1,2,3"}}), word_of(Errc::invalid_argument));
  EXPECT_EQ(own(hung, {{"SLURM_JOB_GPUS", "0-3"}}), word_of(Errc::invalid_argument));
  EXPECT_EQ(own(hung, {{"CUDA_VISIBLE_DEVICES", "1"}}), word_of(Errc::invalid_argument));
  EXPECT_EQ(own(hung, {{"CUDA_VISIBLE_DEVICES", seen_uuid(1)}}), "1");
}

// Slurm's numbers are places in slurmd's list, which follows neither NVML nor device files.
TEST(OwnGpus, SlurmsNumbersSelectNoneOfAViewThatIsLarger) {
  EXPECT_EQ(own(seen_gpus({"H200", "H200"}, {1, 4}), {{"SLURM_JOB_GPUS", "4,6"}}), "1 4");
  for (const char* one : {"0", "1", "4"})
    EXPECT_EQ(own(seen_gpus({"H200", "H200"}, {1, 4}), {{"SLURM_JOB_GPUS", one}}),
              word_of(Errc::invalid_argument));
}

TEST(OwnGpus, WholeUuidsNeedNoDriver) {
  const auto without = [](const std::string& value, Errc code = Errc::library_missing) {
    return own_gpus(
        [&]() -> Result<SeenGpus> {
          return Error{code, "no driver"};
        },
        with({{"CUDA_VISIBLE_DEVICES", value}}));
  };
  const auto two = without(seen_uuid(2) + "," + seen_uuid(0));
  ASSERT_TRUE(two.ok());
  EXPECT_EQ((*two)->uuids, (std::vector{seen_uuid(2), seen_uuid(0)}));
  ASSERT_TRUE(without("").ok());
  EXPECT_TRUE((*without(""))->uuids.empty());
  for (const std::string& other : {std::string("0"), std::string("GPU-0000"), seen_uuid(1) + ",0",
                                   seen_uuid(1) + "," + seen_uuid(1)}) {
    ASSERT_FALSE(without(other).ok()) << other;
    EXPECT_NE(without(other).error().message.find("whole UUIDs"), std::string::npos) << other;
  }
  EXPECT_FALSE(without(seen_uuid(0), Errc::gpu_stuck).ok());
}

TEST(OwnGpus, WithoutThemNobodySaysAndNoDriverIsAsked) {
  const auto see = []() -> Result<SeenGpus> {
    ADD_FAILURE() << "asked";
    return SeenGpus{};
  };
  EXPECT_FALSE(own_gpus(see, with({}))->has_value());
}

RC_GTEST_PROP(OwnGpus, AnyTextIsAnAnswerOrAnError, (const std::string& text)) {
  const SeenGpus all = seen_gpus(kFour);
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"}) {
    const auto found = own_gpus([&] { return Result<SeenGpus>(all); }, with({{name, text}}));
    if (!found.ok()) RC_ASSERT(!found.error().message.empty());
    if (found.ok() && *found) RC_ASSERT((*found)->uuids.size() <= all.gpus.size());
  }
}

}  // namespace
}  // namespace derate
