#include "integ/slurm/slurm_begin.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

struct Begin {
  SlurmJob job{.id = 7, .gpus = {1}};
  Result<SlurmNode> node = SlurmNode{.minors = {0, 1}, .constrained = true};
  int calls = 0;

  SlurmBegin operator()() {
    return slurm_begin(
        job,
        [this] {
          ++calls;
          return node;
        },
        [this]() -> Result<SeenGpus> {
          ++calls;
          SeenGpus out;
          for (int i = 0; i < 2; ++i) {
            SeenGpu gpu;
            gpu.id.uuid = "GPU-" + std::to_string(i);
            gpu.minor = i;
            out.gpus.push_back(gpu);
          }
          return out;
        });
  }
};

TEST(SlurmBegin, HasTheJobsGpus) {
  Begin begin;
  const SlurmBegin out = begin();
  EXPECT_EQ(out.gpus, std::vector<std::string>{"GPU-1"});
  EXPECT_EQ(out.hands_off, "");
}

TEST(SlurmBegin, AJobWithoutGpusAsksNobody) {
  Begin begin;
  begin.job.gpus.clear();
  EXPECT_TRUE(begin().gpus.empty());
  EXPECT_EQ(begin.calls, 0);
}

TEST(SlurmBegin, HandsOffWhatIsNotProvenAndSaysWhy) {
  Begin begin;
  begin.job.gpus = {2};
  EXPECT_TRUE(begin().gpus.empty());
  EXPECT_NE(begin().hands_off.find("not in the node's list"), std::string::npos);
  begin.node = Error{Errc::gpu_stuck, "'scontrol' did not end"};
  EXPECT_EQ(begin().hands_off, "'scontrol' did not end");
}

TEST(SlurmBegin, HandsOffGpusWhoseClocksSlurmSets) {
  Begin begin;
  begin.node->default_frequency = "low";
  EXPECT_EQ(begin().gpus, std::vector<std::string>{"GPU-1"});
  EXPECT_NE(begin().hands_off.find("GpuFreqDef=low"), std::string::npos);
}

}  // namespace
}  // namespace derate
