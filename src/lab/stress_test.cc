#include "lab/stress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "device/sim/sim_device.h"
#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

const SimChip& volta() { return chip_named("V100-SXM2"); }

Circumstances under(const Experiment& experiment, std::size_t cell) {
  return circumstances(experiment, volta(), cells_of(experiment)[cell]);
}

TEST(Stress, EveryCounterAxisReachesTheSensors) {
  Experiment e;
  e.counter_gain = {1.05};
  e.counter_wander = {0.05};
  e.counter_frozen_s = {5};
  e.counter_frozen_every_s = {10};
  e.memory_bias = {0.03};
  e.activity_noise = {0.01};
  ASSERT_EQ(cells_of(e).size(), 1u);
  const Circumstances c = under(e, 0);
  EXPECT_EQ(c.chip.sensors.counter_gain, 1.05);
  EXPECT_EQ(c.chip.sensors.counter_wander, 0.05);
  EXPECT_EQ(c.chip.sensors.frozen.lasts, std::chrono::seconds(5));
  EXPECT_EQ(c.chip.sensors.frozen.every, std::chrono::seconds(10));
  EXPECT_EQ(c.chip.sensors.activity_noise, 0.01);
  EXPECT_EQ(c.work_stress.memory_bias, 0.03);
}

// In full from 79 % of the highest clock down, nothing there.
TEST(Stress, AnOverstatedCounterErrsAtLowClocksOnly) {
  auto work = find_workload(volta(), "GeMM");
  ASSERT_TRUE(work.ok());
  const Workload before = *work;
  overstate_memory(*work, 0.03, volta());
  const auto shown = [](const Workload& one, std::size_t at) {
    return one.phases[0].points[at].memory_utilisation->value();
  };
  const std::size_t top = volta().sm_clocks.size() - 1;
  EXPECT_EQ(shown(*work, top), shown(before, top));
  for (std::size_t at = 0; at < top; ++at) EXPECT_GE(shown(*work, at), shown(before, at) - 1e-12);
  EXPECT_NEAR(shown(*work, 0) - shown(before, 0), 0.03 * shown(before, top), 1e-9);
}

// --- what is true under an axis, measured on a simulated GPU -------------------------------------

// A GPU without noise and switch latency under one value of one axis, with endless work.
struct Rig {
  Rig(const char* name, std::vector<double> Experiment::*axis, double value,
      std::function<Workload(const SimChip&)> make)
      : c(circumstances_of(name, axis, value)),
        original(make(c.chip)),
        gpu(c.chip, {}),
        device(gpu, clock, 0) {
    Workload work = original;
    apply_stress(work, c.work_stress, c.chip);
    (void)read();
    gpu.start(std::move(work), 0s);
  }
  static Circumstances circumstances_of(const char* name, std::vector<double> Experiment::*axis,
                                        double value) {
    Experiment e;
    e.*axis = {value};
    return circumstances(e, plain(chip_named(name)), cells_of(e)[0]);
  }
  Sample read() {
    const auto sample = device.read({});
    CHECK(sample.ok());
    return *sample;
  }
  Sample read_after(Duration wait) {
    clock.advance(wait);
    return read();
  }
  void lock(std::size_t index) {
    CHECK(device.lock_sm_clock(c.chip.sm_clocks[index], c.chip.sm_clocks[index]).ok());
  }
  // At that clock, once it and the counters have settled.
  struct Seen {
    double rate;  // work a second
    Sample sample;
  };
  Seen at(std::size_t index) {
    lock(index);
    (void)read_after(2s);
    const double before = gpu.work_done();
    const Sample sample = read_after(2s);
    CHECK(sample.sm_clock == c.chip.sm_clocks[index]);
    return {(gpu.work_done() - before) / 2, sample};
  }
  std::size_t top() const { return c.chip.sm_clocks.size() - 1; }
  double ratio(std::size_t index) const {
    return c.chip.sm_clocks[index] / c.chip.sm_clocks.back();
  }

  Circumstances c;
  Workload original;
  FakeClock clock;
  SimGpu gpu;
  SimDevice device;
};

Workload named_work(const SimChip& chip, const char* name) {
  auto out = find_workload(chip, name);
  CHECK(out.ok());
  return *std::move(out);
}

Workload half_memory(const SimChip& chip) { return named_work(chip, "CNN_2.4M"); }

// Performance is the clock's ratio, and memory utilisation half of performance.
Workload clock_bound(const SimChip& chip) {
  OperatingPoint point = point_of(1, 100);
  point.gpu_utilisation = Fraction(1);
  Workload out = work_of(chip, phase_of(chip, point, true));
  for (OperatingPoint& each : out.phases[0].points)
    each.memory_utilisation = Fraction(each.rate / 2);
  return out;
}

// A counter that moves with the clock stands between two renewals, 1.5 s apart, and shows the mean
// of the 1.5 s before the last.
TEST(StressTruth, CountersAreRenewedThatOftenAndShowTheLastRenewal) {
  Rig rig("V100-SXM2", &Experiment::counter_refresh_s, 1.5, clock_bound);
  std::vector<double> changes;  // s
  double sum = 0;
  std::vector<double> sums{0};  // of what was true, in points, by steps of 10 ms
  std::optional<Fraction> before = rig.read_after(2s).memory_utilisation;
  for (int i = 0; i < 4000; ++i) {
    if (i % 100 == 0) rig.lock(static_cast<std::size_t>(i / 100 * 37 % 100) + 60);
    const auto shown = rig.read_after(10ms).memory_utilisation;
    sums.push_back(sum += 50 * (rig.gpu.sm_clock() / rig.c.chip.sm_clocks.back()));
    if (shown == before) continue;
    before = shown;
    if (sums.size() > 150) {
      EXPECT_NEAR(as_percent(*shown), (sum - sums[sums.size() - 151]) / 150, 0.5 + 1e-6);
      changes.push_back(i * 0.01);
    }
  }
  ASSERT_GE(changes.size(), 20u);
  for (const double at : changes) {
    const double renewals = (at - changes.front()) / 1.5;
    EXPECT_NEAR(renewals, std::round(renewals), 1e-6);
  }
}

TEST(Stress, AWindowThatIsNamedStaysWhereCountersAreRenewedRarely) {
  Experiment e;
  e.counter_refresh_s = {2};
  e.counter_window_s = {0.5};
  const CounterSpec counter = under(e, 0).chip.sensors.utilisation;
  EXPECT_EQ(counter.refresh, 2s);
  EXPECT_EQ(counter.window, 500ms);
}

// GPM's windows are as long as their renewals are apart, and each is read once.
TEST(StressTruth, ActivityIsRenewedThatOften) {
  Rig rig("H200", &Experiment::counter_refresh_s, 2,
          [](const SimChip& chip) { return named_work(chip, "copy"); });
  int windows = 0;
  for (int i = 0; i < 400; ++i) windows += rig.read_after(100ms).activity.dram ? 1 : 0;
  EXPECT_NEAR(windows, 20, 1);
}

TEST(StressTruth, UtilisationComesInSteps) {
  Rig rig("V100-SXM2", &Experiment::counter_step_points, 5, clock_bound);
  int apart = 0;
  for (std::size_t i = 0; i <= rig.top(); i += 7) {
    const Rig::Seen seen = rig.at(i);
    const double shown = as_percent(*seen.sample.memory_utilisation);
    EXPECT_NEAR(shown / 5, std::round(shown / 5), 1e-9);
    EXPECT_NEAR(shown, 50 * seen.rate, 2.5 + 1e-6);
    EXPECT_EQ(as_percent(*seen.sample.gpu_utilisation), 100);
    apart += std::abs(shown - 50 * seen.rate) > 1 ? 1 : 0;
  }
  EXPECT_GT(apart, 5);
}

// Half a point for rounding.
TEST(StressTruth, ACounterFollowsProgressByItsShare) {
  for (const double share : {1.0, 0.75, 0.5, 0.0}) {
    Rig rig("V100-SXM2", &Experiment::counter_follows, share, half_memory);
    const double level = rig.original.phases[0].points.back().memory_utilisation->value();
    for (const std::size_t i : {rig.top(), rig.top() - 40, rig.top() - 80}) {
      const Rig::Seen seen = rig.at(i);
      EXPECT_NEAR(seen.rate, rig.original.performance(i), 1e-6);
      EXPECT_NEAR(as_percent(*seen.sample.memory_utilisation),
                  100 * level * (1 - share * (1 - seen.rate)), 0.51);
    }
    EXPECT_LT(rig.at(rig.top() - 80).rate, 0.8);
  }
}

// A pipe's share of the cycles, times the clock, is its progress.
TEST(StressTruth, APipeFollowsProgressByItsCycles) {
  for (const double share : {1.0, 0.5}) {
    Rig rig("H200", &Experiment::counter_follows, share,
            [](const SimChip& chip) { return named_work(chip, "gemm_fp32"); });
    const OperatingPoint full = rig.original.phases[0].points.back();
    for (const std::size_t i : {rig.top() - 30, rig.top() - 45}) {
      const Rig::Seen seen = rig.at(i);
      const double follows = 1 - share * (1 - seen.rate);
      const Activity& shown = seen.sample.activity;
      EXPECT_NEAR(shown.fp32->value() * rig.ratio(i), full.activity.fp32->value() * follows, 1e-6);
      EXPECT_NEAR(shown.dram->value(), full.activity.dram->value() * follows, 1e-6);
    }
  }
}

// A clock that was requested when the GPU ran lower: 1.3 s later. One below: as the chip has it,
// which is at once.
TEST(StressTruth, AHigherClockComesLate) {
  Rig rig("V100-SXM2", &Experiment::rises_late_s, 1.3, clock_bound);
  (void)rig.at(100);
  rig.lock(150);
  EXPECT_EQ(rig.read_after(1300ms).sm_clock, rig.c.chip.sm_clocks[100]);
  EXPECT_EQ(rig.read_after(10ms).sm_clock, rig.c.chip.sm_clocks[150]);
  rig.lock(120);
  EXPECT_EQ(rig.read_after(10ms).sm_clock, rig.c.chip.sm_clocks[120]);
}

TEST(StressTruth, TheRealClockIsBelowTheShownOne) {
  Rig rig("V100-SXM2", &Experiment::clock_shown_off, 0.02, clock_bound);
  EXPECT_NEAR(rig.at(rig.top()).rate, 1, 1e-9);
  for (const std::size_t i : {rig.top() - 1, rig.top() - 40, rig.top() - 90}) {
    const Rig::Seen seen = rig.at(i);
    EXPECT_NEAR(seen.rate, 0.98 * rig.ratio(i), 1e-9);
    EXPECT_NEAR(as_percent(*seen.sample.memory_utilisation), 50 * seen.rate, 0.51);
  }
}

TEST(StressTruth, TheRealClockMovesInSteps) {
  Rig rig("V100-SXM2", &Experiment::clock_step_mhz, 45, clock_bound);
  EXPECT_NEAR(rig.at(rig.top()).rate, 1, 1e-9);
  for (std::size_t back = 1; back < 60; back += 7) {
    const std::size_t i = rig.top() - back;
    const double shown = rig.c.chip.sm_clocks[i].value();
    const double steps = (1530 - rig.at(i).rate * 1530) / 45, real = 1530 - 45 * steps;
    EXPECT_NEAR(steps, std::round(steps), 1e-6);
    EXPECT_LE(real, shown + 1e-6);
    EXPECT_GT(real, shown - 45);
  }
}

// In full from 79 % of the highest clock down; counters say of progress what they did.
TEST(StressTruth, WorkLosesMoreThanTheClocksRatio) {
  for (const auto& make : {clock_bound, half_memory}) {
    Rig rig("V100-SXM2", &Experiment::beyond_ratio, 0.007, make);
    const auto own = [&](std::size_t i) { return rig.original.performance(i); };
    EXPECT_NEAR(rig.at(rig.top()).rate, 1, 1e-9);
    for (std::size_t i = 60; i < rig.top(); i += 15) {
      const Rig::Seen seen = rig.at(i);
      const double share = std::min(1.0, (1 - rig.ratio(i)) / (1 - 1207.0 / 1530));
      EXPECT_NEAR(seen.rate, own(i) - 0.007 * share, 1e-6);
      const auto was = rig.original.phases[0].points[i].memory_utilisation;
      EXPECT_NEAR(as_percent(*seen.sample.memory_utilisation),
                  as_percent(*was) * (seen.rate / own(i)), 0.51);
    }
  }
}

// For 20 s of each 25 nothing new is read.
TEST(StressTruth, CountersStandStillForMostOfTheTime) {
  Experiment e;
  e.counter_frozen_s = {10, 20};
  e.counter_frozen_every_s = {25};
  ASSERT_EQ(cells_of(e).size(), 2u);
  for (std::size_t cell = 0; cell < 2; ++cell) {
    const Circumstances c = circumstances(e, plain(volta()), cells_of(e)[cell]);
    SimSensors sensors(c.chip.sensors, 10ms, 1);
    int still = 0, longest = 0, all = 0;
    std::optional<Fraction> before;
    const std::vector<OperatingPoint> points = clock_bound(c.chip).phases[0].points;
    for (int i = 0; i < 20000; ++i) {  // 200 s; a new value in each 100 ms that they do not stand
      sensors.step(points[static_cast<std::size_t>(i / 10 * 37 % 180)], 1_W);
      const auto shown = sensors.memory_utilisation();
      still = shown == before ? still + 1 : 0;
      before = shown;
      longest = std::max(longest, still);
      all += still > 100 ? 1 : 0;
    }
    EXPECT_NEAR(longest, e.counter_frozen_s[cell] * 100, 60);
    EXPECT_NEAR(all, 8 * (e.counter_frozen_s[cell] - 1) * 100, 500);
  }
}

}  // namespace
}  // namespace derate
