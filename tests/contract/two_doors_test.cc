// One script of locks, jobs and time, read through both doors of the simulation: in process and
// through NVML's C interface. What differs is only what NVML's integers cannot say.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "device/nvml/nvml_device.h"
#include "device/sim/sim_device.h"
#include "fakenvml/library_path.h"
#include "fakenvml/test_served.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr double kMilliwatt = 1e-3 / 2 + 1e-9, kMillijoule = 1e-3;

void expect_near(std::optional<double> in_process, std::optional<double> through_nvml,
                 double tolerance, const char* what) {
  ASSERT_EQ(in_process.has_value(), through_nvml.has_value()) << what;
  if (in_process) {
    EXPECT_NEAR(*in_process, *through_nvml, tolerance) << what;
  }
}
template <class Q>
std::optional<double> raw(const std::optional<Q>& quantity) {
  return quantity ? std::optional(quantity->value()) : std::nullopt;
}

void expect_same(const Sample& a, const Sample& b) {
  expect_near(raw(a.gpu_utilisation), raw(b.gpu_utilisation), 1e-9, "GPU utilisation");
  expect_near(raw(a.memory_utilisation), raw(b.memory_utilisation), 1e-9, "memory utilisation");
  expect_near(raw(a.sm_clock), raw(b.sm_clock), 0, "SM clock");
  expect_near(raw(a.memory_clock), raw(b.memory_clock), 0, "memory clock");
  expect_near(raw(a.power_usage), raw(b.power_usage), kMilliwatt, "power");
  expect_near(raw(a.power_instant), raw(b.power_instant), kMilliwatt, "instant power");
  expect_near(raw(a.power_average), raw(b.power_average), kMilliwatt, "average power");
  expect_near(raw(a.energy), raw(b.energy), kMillijoule, "energy");
  expect_near(raw(a.temperature), raw(b.temperature), 0, "temperature");
  EXPECT_EQ(a.throttle_reasons, b.throttle_reasons);
}

class TwoDoors : public testing::TestWithParam<int> {
 protected:
  const SimChip& chip_ = sim_chips()[static_cast<std::size_t>(GetParam())];
  std::mt19937 random_{static_cast<unsigned int>(GetParam()) + 7};
};

TEST_P(TwoDoors, AnyScriptReadsTheSame) {
  const auto workloads = built_in_workloads(chip_);
  ASSERT_TRUE(workloads.ok());
  fakenvml::Served served({&chip_}, 42);
  FakeClock clock;
  SimGpu gpu(chip_, {.seed = 42});
  SimDevice inside(gpu, clock, 0);
  ASSERT_TRUE(inside.read({}).ok());
  auto library = NvmlLibrary::load(fakenvml::kLibraryPath);
  ASSERT_TRUE(library.ok());
  const auto outside = NvmlDevice::open(*library, 0, served.clock());
  ASSERT_TRUE(outside.ok());
  EXPECT_EQ(inside.capability().id, (*outside)->capability().id);
  EXPECT_EQ(inside.capability().sm_clocks, (*outside)->capability().sm_clocks);

  const auto any = [&](std::size_t n) { return random_() % n; };
  int jobs = 0;
  for (int step = 0; step < 300; ++step) {
    const Megahertz one = chip_.sm_clocks[any(chip_.sm_clocks.size())];
    const Megahertz other = chip_.sm_clocks[any(chip_.sm_clocks.size())];
    switch (any(12)) {
      case 0:
        ASSERT_TRUE(inside.lock_sm_clock(std::min(one, other), std::max(one, other)).ok());
        ASSERT_TRUE((*outside)->lock_sm_clock(std::min(one, other), std::max(one, other)).ok());
        break;
      case 1:
        ASSERT_TRUE(inside.reset_sm_clock().ok());
        ASSERT_TRUE((*outside)->reset_sm_clock().ok());
        break;
      case 2: {
        const PowerLimits& limits = chip_.power_limits;
        const double share = static_cast<double>(any(5)) / 4;
        const Watts limit = limits.lowest + (limits.highest - limits.lowest) * share;
        const bool settable = inside.capability().power_limits.has_value();
        ASSERT_EQ(inside.set_power_limit(limit).ok(), settable);
        ASSERT_EQ((*outside)->set_power_limit(limit).ok(), settable);
        break;
      }
      case 3:
        // One job at a time: the served one stays, as its connection does.
        if (jobs++ > 0 || workloads->empty()) break;
        gpu.add((*workloads)[1 % workloads->size()], Duration::zero());
        served.start_job((*workloads)[1 % workloads->size()].name);
        break;
      default:
        break;
    }
    const Duration time = 10ms * static_cast<int>(any(60));
    clock.advance(time);
    served.pass(time);
    const ReadPlan plan{.energy = true, .activity = false};
    const auto a = inside.read(plan), b = (*outside)->read(plan);
    ASSERT_TRUE(a.ok() && b.ok());
    expect_same(*a, *b);
    if (HasFailure()) FAIL() << "at step " << step;
  }
  EXPECT_GT(jobs, 0);
  EXPECT_NEAR(served.now().work_seconds, gpu.work_done(), 1e-9);
  EXPECT_NEAR(served.now().joules, gpu.energy().value(), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(EveryChip, TwoDoors,
                         testing::Range(0, static_cast<int>(sim_chips().size())));

}  // namespace
}  // namespace derate
