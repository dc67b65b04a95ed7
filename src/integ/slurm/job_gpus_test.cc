#include "integ/slurm/job_gpus.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace derate {
namespace {

using Minors = std::vector<std::optional<int>>;

// A node whose GPUs have these minor numbers and places on the PCI bus, by NVML's index.
SeenGpus node(const std::vector<int>& minors, const std::vector<int>& buses) {
  SeenGpus out;
  for (std::size_t i = 0; i < minors.size(); ++i) {
    SeenGpu gpu;
    gpu.id = {
        .index = static_cast<int>(i),
        .uuid = "GPU-" + std::to_string(i),
        .pci_bus_id = "00000000:" + std::string(1, static_cast<char>('a' + buses[i])) + "0:00.0",
        .name = "NVIDIA A100"};
    gpu.minor = minors[i];
    out.gpus.push_back(gpu);
  }
  return out;
}

TEST(JobGpus, AreThoseOfTheDeviceFilesOfItsPlaces) {
  const SeenGpus seen = node({3, 2, 1, 0}, {0, 1, 2, 3});
  const std::vector<int> places{0, 3};
  EXPECT_EQ(*job_gpus(places, Minors{2, 3, 0, 1}, seen, true),
            (std::vector<std::string>{"GPU-1", "GPU-2"}));
  EXPECT_TRUE(job_gpus({}, Minors{}, seen, true)->empty());
}

TEST(JobGpus, RefuseWhatIsNotProven) {
  const std::vector<int> places{1};
  const auto fails = [&](const Minors& minors, const SeenGpus& seen, bool constrained = true) {
    const auto found = job_gpus(places, minors, seen, constrained);
    return !found.ok() && found.error().code == Errc::not_supported;
  };
  const SeenGpus good = node({0, 1}, {0, 1});
  EXPECT_FALSE(fails({0, 1}, good));
  EXPECT_FALSE(fails({0, 1}, good, false));
  EXPECT_TRUE(fails({0}, good));
  EXPECT_TRUE(fails({0, std::nullopt}, good));
  EXPECT_TRUE(fails({1, 1}, good));
  EXPECT_TRUE(fails({0, 7}, good));
  EXPECT_TRUE(fails({1, 0}, good, false));
  EXPECT_TRUE(fails({0, 1}, node({0, 1}, {1, 0}), false));
  EXPECT_TRUE(fails({0, 1}, node({1, 1}, {0, 1})));
  SeenGpus other = good;
  other.gpus[1].id.name = "NVIDIA T4";
  EXPECT_TRUE(fails({0, 1}, other, false));
  EXPECT_FALSE(fails({0, 1}, other));
  other = good;
  other.gpus[1].mig = true;
  EXPECT_TRUE(fails({0, 1}, other));
  other = good;
  other.silent = {2};
  EXPECT_TRUE(fails({0, 1}, other));
}

std::vector<int> shuffled(int count) {
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  for (std::size_t i = out.size(); i > 1; --i)
    std::swap(out[i - 1], out[*rc::gen::inRange<std::size_t>(0, i)]);
  return out;
}

// In any order of NVML, device files, the bus and the node's list: the GPU that a job's
// program gets, or a refusal.
RC_GTEST_PROP(JobGpus, AreTheRightOnesOrRefused, ()) {
  const int count = *rc::gen::inRange(1, 9);
  const bool ordered = *rc::gen::inRange(0, 4) == 0;
  std::vector<int> straight(static_cast<std::size_t>(count));
  std::iota(straight.begin(), straight.end(), 0);
  const auto order = [&] { return ordered ? straight : shuffled(count); };
  const auto minor_of = order(), bus_of = order(), list = order();
  const SeenGpus seen = node(minor_of, bus_of);
  const bool constrained = *rc::gen::arbitrary<bool>();
  const int place = *rc::gen::inRange(0, count);
  const auto found =
      job_gpus(std::vector<int>{place}, Minors(list.begin(), list.end()), seen, constrained);
  if (!found.ok()) {
    RC_ASSERT(!constrained && !ordered);
    return;
  }
  // Constrained: the device file that the job can open. Else: the GPU at that place of the bus.
  const auto& wanted = constrained ? minor_of : bus_of;
  const int number = constrained ? list[static_cast<std::size_t>(place)] : place;
  const auto at = std::find(wanted.begin(), wanted.end(), number) - wanted.begin();
  RC_ASSERT(*found == std::vector<std::string>{"GPU-" + std::to_string(at)});
}

}  // namespace
}  // namespace derate
