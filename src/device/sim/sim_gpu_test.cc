#include "device/sim/sim_gpu.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

Megahertz any_clock(const SimChip& chip) {
  return chip.sm_clocks[*rc::gen::inRange<std::size_t>(0, chip.sm_clocks.size())];
}
const SimChip& any_chip() {
  return modelled_chips()[*rc::gen::inRange<std::size_t>(0, modelled_chips().size())];
}
Workload any_workload(const SimChip& chip) {
  const auto workloads = all_workloads(chip);
  return workloads[*rc::gen::inRange<std::size_t>(0, workloads.size())];
}
Duration any_duration(Duration low, Duration high) {
  return Duration(*rc::gen::inRange(low.count(), high.count()));
}

void run(SimGpu& gpu, Duration time) { gpu.advance_to(gpu.now() + time); }

// Locked and there: the switch takes at most some tenths of a second.
void lock_and_wait(SimGpu& gpu, Megahertz clock) {
  gpu.lock(clock, clock);
  do run(gpu, 10ms);
  while (gpu.sm_clock() != clock);
}

// --- truth: energy and work ----------------------------------------------------------------------

RC_GTEST_PROP(SimGpuProperty, EnergyIsTheIntegralOfPower, ()) {
  const SimChip& chip = any_chip();
  SimGpu gpu(chip, {.seed = *rc::gen::arbitrary<std::uint64_t>(), .voltage_spread = 0.02});
  double joules = 0;
  for (int act = 0; act < 6; ++act) {
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        gpu.lock(any_clock(chip), chip.sm_clocks.back());
        break;
      case 1:
        gpu.unlock();
        break;
      case 2:
        gpu.start(any_workload(chip), any_duration(0s, 5s));
        break;
      default:
        gpu.stop();
    }
    for (int i = 0; i < 100; ++i) {
      run(gpu, 10ms);
      joules += gpu.power().value() * 0.01;
    }
  }
  RC_ASSERT(std::abs(gpu.energy().value() - joules) < 1e-9 * joules);
}

RC_GTEST_PROP(SimGpuProperty, WorkAtTheHighestClockTakesItsTime, ()) {
  // H200 left out: some of its work meets the power limit.
  const SimChip& chip = sim_chips()[*rc::gen::inRange<std::size_t>(0, 2)];
  SimGpu gpu(chip, {});
  lock_and_wait(gpu, chip.sm_clocks.back());
  const Duration work = any_duration(1ms, 100s);
  gpu.start(any_workload(chip), work);
  run(gpu, 101s);
  RC_ASSERT(gpu.job()->finished.has_value());
  // 10,000 sums of 0.01 are good to 1e-9.
  RC_ASSERT(std::abs(seconds(*gpu.job()->finished - gpu.job()->started - work)) < 1e-8);
  RC_ASSERT(std::abs(gpu.work_done() - seconds(work)) < 1e-8);
}

RC_GTEST_PROP(SimGpuProperty, AJobEndsInsideAStep, ()) {
  const SimChip chip = plain_chip();
  const double rate = *rc::gen::inRange(1, 100) / 100.0;
  const double watts = *rc::gen::inRange(60, 300);
  const Duration work = any_duration(1us, 3s);
  SimGpu gpu(chip, {.step = any_duration(1ms, 20ms)});
  gpu.start(work_of(chip, phase_of(chip, point_of(rate, watts))), work);
  RC_ASSERT(gpu.busy());
  while (gpu.busy()) run(gpu, 1s);
  const SimJob& job = *gpu.job();
  const double took = seconds(*job.finished - job.started);
  RC_ASSERT(std::abs(took - seconds(work) / rate) < 1e-8);
  RC_ASSERT(std::abs((job.energy_at_finish - job.energy_at_start).value() - watts * took) < 1e-5);
  RC_ASSERT(job.done == seconds(work));
}

RC_GTEST_PROP(SimGpuProperty, AHigherClockNeverFinishesLater, ()) {
  const SimChip& chip = sim_chips()[*rc::gen::inRange<std::size_t>(0, 2)];
  const Workload workload = any_workload(chip);
  const auto time_at = [&](Megahertz clock) {
    SimGpu gpu(chip, {});
    lock_and_wait(gpu, clock);
    gpu.start(workload, 2s);
    while (gpu.busy()) run(gpu, 1s);
    return seconds(*gpu.job()->finished - gpu.job()->started);
  };
  const Megahertz a = any_clock(chip), b = any_clock(chip);
  RC_ASSERT(time_at(std::max(a, b)) <= time_at(std::min(a, b)) + 1e-8);
}

TEST(SimGpu, EndlessWorkEndsWhenItIsStopped) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  gpu.start(steady_work(chip, 200), 0s);
  run(gpu, 1h);
  EXPECT_TRUE(gpu.busy());
  gpu.stop();
  EXPECT_FALSE(gpu.busy());
  EXPECT_EQ(gpu.job()->finished, Instant(1h));
  EXPECT_NEAR((gpu.job()->energy_at_finish - gpu.job()->energy_at_start).value(), 200 * 3600, 1e-3);
  EXPECT_NEAR(gpu.work_done(), 3600, 1e-6);
}

TEST(SimGpu, NewWorkTakesThePlaceOfWhatRan) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  gpu.start(steady_work(chip, 200), 10s);
  run(gpu, 4s);
  gpu.start(steady_work(chip, 100), 1s);
  EXPECT_EQ(gpu.job()->started, Instant(4s));
  EXPECT_NEAR(gpu.job()->energy_at_start.value(), 800, 1e-6);
  run(gpu, 2s);
  EXPECT_FALSE(gpu.busy());
  EXPECT_NEAR(gpu.work_done(), 5, 1e-9);
}

// --- phases --------------------------------------------------------------------------------------

TEST(SimGpu, PhasesComeInTurnByWorkDone) {
  const SimChip chip = plain_chip();
  Workload workload = work_of(chip, phase_of(chip, point_of(1, 100)));
  workload.phases[0].work = 1s;
  workload.phases.push_back(phase_of(chip, point_of(0.5, 200)));
  workload.phases[1].work = 1s;
  SimGpu gpu(chip, {});
  gpu.start(workload, 0s);
  // One second of the first, two of the second, round and round; a step of slack at each border.
  for (int i = 0; i < 900; ++i) {
    run(gpu, 10ms);
    const int within = i % 300;
    if (within % 100 < 3 || within % 100 > 96) continue;
    EXPECT_EQ(gpu.power(), within < 100 ? 100_W : 200_W) << i;
  }
}

TEST(SimGpu, AGapWaitsAtIdlePowerWithTheClockHeld) {
  const SimChip chip = plain_chip();
  Workload workload = steady_work(chip, 250);
  workload.phases[0].work = 1s;
  workload.phases[0].gap = 500ms;
  SimGpu gpu(chip, {});
  gpu.start(workload, 0s);
  int waiting = 0;
  for (int i = 0; i < 3000; ++i) {
    run(gpu, 10ms);
    EXPECT_TRUE(gpu.busy());
    EXPECT_EQ(gpu.sm_clock(), chip.sm_clocks.back());
    if (gpu.power() == 250_W) continue;
    EXPECT_EQ(gpu.power(), Watts(chip.idle_power.at(chip.sm_clocks.back())));
    ++waiting;
  }
  // A third of the time; each of the 40 borders is good to a step.
  EXPECT_NEAR(waiting, 1000, 40);
}

// However short its phases, no clock makes a job faster than its work and its gaps allow.
RC_GTEST_PROP(SimGpuProperty, ShortPhasesTakeTheirTimeInTheMean, ()) {
  const SimChip chip = plain_chip();
  Workload workload = any_workload(chip);
  workload.phases.resize(1);
  const auto milliseconds = [](int least, int most) {
    return std::chrono::milliseconds(*rc::gen::inRange(least, most));
  };
  workload.phases[0].work = milliseconds(10, 60);
  workload.phases[0].gap = milliseconds(0, 60);
  const Megahertz clock = any_clock(chip);
  SimGpu gpu(chip, {});
  lock_and_wait(gpu, clock);
  const auto at = std::lower_bound(chip.sm_clocks.begin(), chip.sm_clocks.end(), clock);
  const auto index = static_cast<std::size_t>(at - chip.sm_clocks.begin());
  const double rate = workload.phases[0].points[index].rate;
  const double rounds = 60 / seconds(workload.phases[0].work);
  const double wanted = 60 / rate + rounds * seconds(workload.phases[0].gap);
  const Instant began = gpu.now();
  const auto id = gpu.add(workload, 60s);
  while (!gpu.tenant(id)->finished) run(gpu, 1s);
  RC_ASSERT(std::abs(seconds(*gpu.tenant(id)->finished - began) / wanted - 1) < 0.01);
}

TEST(SimGpu, APartOfAJobOnSeveralGpusWaitsAfterEachRound) {
  const SimChip chip = plain_chip();
  Workload workload = steady_work(chip, 250);
  workload.phases[0].work = 1s;
  workload.gpus = 2;
  SimGpu gpu(chip, {});
  const auto id = gpu.add(workload, 2s);
  run(gpu, 5s);
  EXPECT_TRUE(gpu.waits(id));
  EXPECT_EQ(gpu.power(), Watts(chip.idle_power.at(chip.sm_clocks.back())));
  EXPECT_NEAR(gpu.work_done(), 1, 0.02);
  gpu.go_on(id);
  EXPECT_FALSE(gpu.waits(id));
  run(gpu, 2s);
  EXPECT_TRUE(gpu.tenant(id)->finished);
  EXPECT_FALSE(gpu.waits(id));
}

TEST(SimGpu, PowerDriftsWithinAPhaseAndIsBackAtItsStart) {
  const SimChip chip = plain_chip();
  const double idle = chip.idle_power.at(chip.sm_clocks.back());
  Workload workload = steady_work(chip, 200);
  workload.phases[0].work = 60s;
  workload.phases[0].gap = 30s;
  workload.phases[0].power_drift_per_minute = 0.2;
  SimGpu gpu(chip, {});
  gpu.start(workload, 0s);
  run(gpu, 30s);
  EXPECT_NEAR(gpu.power().value(), idle + (200 - idle) * 1.1, 0.01);
  run(gpu, 29900ms);
  EXPECT_NEAR(gpu.power().value(), idle + (200 - idle) * 1.2, 0.1);
  run(gpu, 30100ms + 100ms);  // the second round has just begun
  EXPECT_NEAR(gpu.power().value(), 200, 0.1);
}

// --- clock ---------------------------------------------------------------------------------------

RC_GTEST_PROP(SimGpuProperty, ALockTakesEffectAfterTheLatencyAndNotBefore, ()) {
  SimChip chip = plain_chip();
  const Duration latency = any_duration(0ms, 200ms);
  const Duration step = any_duration(1ms, 20ms);
  chip.latency = {latency, latency};
  SimGpu gpu(chip, {.step = step});
  gpu.start(steady_work(chip, 100), 0s);
  run(gpu, 1s);
  RC_ASSERT(gpu.sm_clock() == chip.sm_clocks.back());
  const Instant asked = gpu.now();
  gpu.lock(chip.sm_clocks[20], chip.sm_clocks[20]);
  while (gpu.now() < asked + latency + 2 * step) {
    gpu.advance_to(gpu.now() + step);
    if (gpu.now() <= asked + latency) RC_ASSERT(gpu.sm_clock() == chip.sm_clocks.back());
  }
  RC_ASSERT(gpu.sm_clock() == chip.sm_clocks[20]);
}

// The clock is the lowest that was requested in the last `rise`: a lower one counts at once, a
// higher one when it was there all the while, and another request between two does not put it off.
RC_GTEST_PROP(SimGpuProperty, AHigherClockTakesEffectAfterItsRise, ()) {
  constexpr Duration kStep = 10ms;
  SimChip chip = plain_chip();
  const int rise = *rc::gen::inRange(1, 40);  // steps
  chip.latency.rise = rise * kStep;
  SimGpu gpu(chip, {.step = kStep});
  gpu.start(steady_work(chip, 100), 0s);
  run(gpu, 1s);
  std::vector<std::size_t> requested;  // before each step
  std::size_t now = chip.sm_clocks.size() - 1;
  for (int i = 0; i < 300; ++i) {
    if (*rc::gen::inRange(0, 8) == 0) {
      now = *rc::gen::inRange<std::size_t>(40, chip.sm_clocks.size());
      gpu.lock(chip.sm_clocks[now], chip.sm_clocks[now]);
    }
    requested.push_back(now);
    run(gpu, kStep);
    const auto since = requested.end() - std::min<std::ptrdiff_t>(rise + 1, i + 1);
    RC_ASSERT(gpu.sm_clock() == chip.sm_clocks[*std::min_element(since, requested.end())]);
  }
}

// Another tool's lock wins over those before it and while it lasts; then the last request counts.
TEST(SimGpu, AClockThatIsHeldIsHeldWhateverIsLocked) {
  const SimChip chip = plain_chip();
  const auto& clocks = chip.sm_clocks;
  SimGpu gpu(chip, {});
  gpu.start(steady_work(chip, 100), 0s);
  gpu.lock(clocks[150], clocks[150]);
  run(gpu, 1s);
  gpu.hold(clocks[100], gpu.now() + 3s);
  run(gpu, 100ms);
  EXPECT_EQ(gpu.sm_clock(), clocks[100]);
  gpu.lock(clocks[120], clocks[120]);
  run(gpu, 1s);
  EXPECT_EQ(gpu.sm_clock(), clocks[100]);
  gpu.unlock();
  run(gpu, 1900ms);
  EXPECT_EQ(gpu.sm_clock(), clocks[100]);
  run(gpu, 10ms);
  EXPECT_EQ(gpu.sm_clock(), clocks.back());
}

// 2,000 draws from a lognormal of median 20 ms and p99 150 ms: sigma = ln(7.5) / 2.326 = 0.866. The
// sample median's standard error is 1.253 sigma / sqrt(2000) = 2.4 %, 0.5 ms; beyond 150 ms lie
// 20 +- 4.4 draws. Bounds are four of each, and the step is 1 ms.
TEST(SimGpu, SwitchLatencyHasItsMedianAndTail) {
  SimChip chip = plain_chip();
  chip.latency = {20ms, 150ms};
  SimGpu gpu(chip, {.seed = 7, .step = 1ms});
  std::vector<double> drawn;
  for (int i = 0; i < 2000; ++i) {
    const Megahertz clock = chip.sm_clocks[i % 2 == 0 ? 30 : 90];
    gpu.lock(clock, clock);
    const Instant asked = gpu.now();
    while (gpu.sm_clock() != clock) run(gpu, 1ms);
    drawn.push_back(seconds(gpu.now() - asked) - 0.001);
  }
  std::sort(drawn.begin(), drawn.end());
  EXPECT_NEAR(drawn[1000], 0.0205, 0.002);
  EXPECT_NEAR(
      static_cast<double>(drawn.end() - std::upper_bound(drawn.begin(), drawn.end(), 0.1505)), 20,
      18);
  EXPECT_GT(drawn.front(), 0);
}

RC_GTEST_PROP(SimGpuProperty, AnIdleGpuDrawsWhatItsHeldClockCosts, ()) {
  const SimChip& chip = any_chip();
  SimGpu gpu(chip, {.voltage_spread = 0.05});
  const Megahertz clock = any_clock(chip);
  lock_and_wait(gpu, clock);
  RC_ASSERT(gpu.power() == Watts(chip.idle_power.at(clock)));
  RC_ASSERT((gpu.throttle_reasons() & throttle::kGpuIdle) != 0);
}

TEST(SimGpu, AnUnlockedGpuRestsAtItsUnusedClockAndBoostsOnWork) {
  for (const SimChip& chip : sim_chips()) {
    const double within_limit = chip.power_limits.factory.value() / 2;
    SimGpu gpu(chip, {});
    run(gpu, 1s);
    EXPECT_EQ(gpu.sm_clock(), chip.unused_clock);
    gpu.start(steady_work(chip, within_limit), 10s);
    run(gpu, 2s);
    EXPECT_EQ(gpu.sm_clock(), chip.sm_clocks.back());
    EXPECT_EQ(gpu.throttle_reasons(), 0u);
    run(gpu, 12s);
    EXPECT_FALSE(gpu.busy());
    EXPECT_EQ(gpu.sm_clock(), chip.unused_clock);
    gpu.lock(chip.sm_clocks[40], chip.sm_clocks[60]);
    run(gpu, 2s);
    // Without a context a low memory clock holds the SM clock down, whatever the lock.
    if (gpu.memory_clock() == chip.memory_clock) {
      EXPECT_EQ(gpu.sm_clock(), chip.sm_clocks[40]);
    } else {
      EXPECT_EQ(gpu.sm_clock(), chip.lower_memory_clocks.back().sm_clocks.back());
    }
    gpu.start(steady_work(chip, within_limit), 0s);
    run(gpu, 2s);
    EXPECT_EQ(gpu.sm_clock(), chip.sm_clocks[60]);
    gpu.unlock();
    EXPECT_FALSE(gpu.locked());
    run(gpu, 2s);
    EXPECT_EQ(gpu.sm_clock(), chip.sm_clocks.back());
  }
}

// --- the regulator -------------------------------------------------------------------------------

TEST(SimGpu, TheRegulatorHoldsTheLimitAndSaysSo) {
  const SimChip& chip = chip_named("H200");
  int capped = 0;
  for (const Workload& workload : all_workloads(chip)) {
    SimGpu gpu(chip, {});
    gpu.start(workload, 0s);
    run(gpu, 10s);
    const Joules before = gpu.energy();
    run(gpu, 60s);
    const double mean = ((gpu.energy() - before) / Duration(60s)).value();
    const double limit = chip.power_limits.factory.value();
    // Leakage of at most 20 W x (e^(0.015 x 22 K) - 1) x 1.5 may lift work that is near the limit.
    if (workload.power(chip.sm_clocks.size() - 1).value() > limit) {
      ++capped;
      EXPECT_NEAR(mean, limit, 0.005 * limit) << workload.name;
      EXPECT_NE(gpu.throttle_reasons() & throttle::kSwPowerCap, 0u) << workload.name;
      EXPECT_LT(gpu.sm_clock(), chip.sm_clocks.back()) << workload.name;
    } else if (workload.power(chip.sm_clocks.size() - 1).value() < limit - 15) {
      EXPECT_LT(mean, limit) << workload.name;
      EXPECT_EQ(gpu.throttle_reasons(), 0u) << workload.name;
      EXPECT_EQ(gpu.sm_clock(), chip.sm_clocks.back()) << workload.name;
    }
  }
  EXPECT_GE(capped, 3);
}

// A lock below the regulated clock is not the cap's doing.
TEST(SimGpu, NoPowerCapIsToldWhereTheLockedClockFits) {
  const SimChip& chip = chip_named("H200");
  SimGpu gpu(chip, {});
  gpu.lock(chip.flat_voltage_end, chip.flat_voltage_end);
  gpu.start(workload_named(chip, "gemm_bf16"), 0s);
  run(gpu, 10s);
  EXPECT_EQ(gpu.sm_clock(), chip.flat_voltage_end);
  EXPECT_EQ(gpu.throttle_reasons(), 0u);
}

// --- heat ----------------------------------------------------------------------------------------

RC_GTEST_PROP(SimGpuProperty, TemperatureSettlesAtAmbientPlusResistanceTimesPower, ()) {
  const SimChip chip = plain(any_chip());
  const double watts = *rc::gen::inRange(60, 300);
  SimGpu gpu(chip, {});
  gpu.start(steady_work(chip, watts), 0s);
  const double start = gpu.temperature().value();
  const double end = chip.thermal.ambient.value() + chip.thermal.kelvin_per_watt * watts;
  run(gpu, chip.thermal.time_constant);
  RC_ASSERT(std::abs(gpu.temperature().value() - (end + (start - end) * std::exp(-1))) < 0.05);
  run(gpu, 20 * chip.thermal.time_constant);
  RC_ASSERT(std::abs(gpu.temperature().value() - end) < 1e-6);
}

TEST(SimGpu, AHotGpuSlowsItselfDownAndSaysSo) {
  SimChip chip = plain_chip();
  chip.thermal.kelvin_per_watt = 0.4;
  SimGpu gpu(chip, {});
  gpu.start(workload_named(chip, "GeMM"), 0s);  // 244 W: would settle at 128 degrees
  run(gpu, 300s);
  EXPECT_NE(gpu.throttle_reasons() & throttle::kThermal, 0u);
  EXPECT_LT(gpu.sm_clock(), chip.sm_clocks.back());
  for (int i = 0; i < 100; ++i) {
    run(gpu, 1s);
    EXPECT_NEAR(gpu.temperature().value(), chip.thermal.slowdown.value(), 4) << i;
  }
  gpu.stop();
  run(gpu, 300s);
  gpu.start(steady_work(chip, 60), 0s);
  run(gpu, 60s);
  EXPECT_EQ(gpu.throttle_reasons() & throttle::kThermal, 0u);
  EXPECT_EQ(gpu.sm_clock(), chip.sm_clocks.back());
}

TEST(SimGpu, LeakageComesOnTopOfFittedWork) {
  const SimChip& chip = chip_named("V100-SXM2");
  for (const Megahertz clock : {chip.flat_voltage_end, chip.sm_clocks.back()}) {
    SimGpu gpu(chip, {});
    lock_and_wait(gpu, clock);
    const Workload workload = steady_work(chip, 260);
    gpu.start(workload, 0s);
    run(gpu, 1s);
    const double cold = gpu.power().value();
    run(gpu, 300s);
    const double above = gpu.temperature().value() - chip.thermal.reference.value();
    ASSERT_GT(above, 5);
    // leakage = L V/Vmin e^(k (T - T0)), of which the part at T0 is in the workload's own power.
    const double expected = chip.thermal.leakage.value() * chip.voltage.at(clock) *
                            (std::exp(chip.thermal.leakage_per_kelvin * above) - 1);
    EXPECT_NEAR(gpu.power().value() - 260, expected, 0.02 * expected);
    EXPECT_LT(cold, 260);
  }
}

TEST(SimGpu, TabledWorkDrawsWhatTheTableSaysHotOrCold) {
  const SimChip& chip = chip_named("V100-SXM2");
  Workload workload = steady_work(chip, 260);
  workload.tabled = true;
  SimGpu gpu(chip, {.voltage_spread = 0.05});
  gpu.start(workload, 0s);
  for (int i = 0; i < 300; ++i) {
    run(gpu, 1s);
    EXPECT_EQ(gpu.power(), 260_W);
  }
  EXPECT_GT(gpu.temperature(), chip.thermal.reference);
}

// --- cards ---------------------------------------------------------------------------------------

// Dynamic power goes with the voltage squared: a spread of 2 % gives one of 4 %. Over 400 cards the
// sample sd is good to 1/sqrt(800) = 3.5 %, the mean to 0.2 %: bounds are four times that.
TEST(SimGpu, CardsDifferByTheirVoltage) {
  const SimChip chip = plain_chip();
  const double idle = chip.idle_power.at(chip.sm_clocks.back());
  double sum = 0, squares = 0;
  for (int seed = 1; seed <= 400; ++seed) {
    SimGpu gpu(chip, {.seed = static_cast<std::uint64_t>(seed), .voltage_spread = 0.02});
    gpu.start(steady_work(chip, 200), 0s);
    run(gpu, 100ms);
    const double share = (gpu.power().value() - idle) / (200 - idle);
    sum += share;
    squares += share * share;
  }
  const double mean = sum / 400, sd = std::sqrt(squares / 400 - mean * mean);
  EXPECT_NEAR(mean, 1, 0.008);
  EXPECT_NEAR(sd, 0.04, 0.0056);
}

std::vector<double> stream(const SimChip& chip, std::uint64_t seed) {
  SimGpu gpu(chip, {.seed = seed, .voltage_spread = 0.01});
  gpu.start(all_workloads(chip)[0], 5s);
  std::vector<double> out;
  for (int i = 0; i < 1000; ++i) {
    if (i % 100 == 0) gpu.lock(chip.sm_clocks[30], chip.sm_clocks[80 - i / 20]);
    run(gpu, 10ms);
    const auto shown = gpu.sensors().shown();
    for (const double value :
         {gpu.power().value(), gpu.sm_clock().value(), gpu.temperature().value(),
          shown.power_usage.value_or(Watts(-1)).value(), shown.energy.value(),
          shown.gpu_utilisation.value_or(Fraction(-1)).value()})
      out.push_back(value);
  }
  return out;
}

RC_GTEST_PROP(SimGpuProperty, TheSeedDecidesEverything, (std::uint64_t seed)) {
  const SimChip& chip = any_chip();
  RC_ASSERT(stream(chip, seed) == stream(chip, seed));
  RC_ASSERT(stream(chip, seed) != stream(chip, seed + 1));
}

// --- tenants -------------------------------------------------------------------------------------

TEST(SimGpuTenants, OneThatWasAddedIsOneThatWasStarted) {
  const SimChip& chip = chip_named("H200");
  const Workload workload = all_workloads(chip).front();
  SimGpu started(chip, {.seed = 5}), added(chip, {.seed = 5});
  started.start(workload, 20s);
  const auto id = added.add(workload, 20s);
  for (int i = 1; i <= 30; ++i) {
    started.advance_to(Instant(i * 1s));
    added.advance_to(Instant(i * 1s));
    EXPECT_EQ(started.energy(), added.energy());
    EXPECT_EQ(started.work_done(), added.work_done());
    EXPECT_EQ(started.sensors().energy(), added.sensors().energy());
  }
  EXPECT_EQ(started.job()->finished, added.tenant(id)->finished);
}

TEST(SimGpuTenants, EqualSlicesOfTheGpu) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  OperatingPoint busy = point_of(1, 200), easy = point_of(0.5, 100);
  busy.gpu_utilisation = Fraction(1);
  easy.gpu_utilisation = Fraction(0.5);
  const auto first = gpu.add(work_of(chip, phase_of(chip, busy)), {});
  const auto second = gpu.add(work_of(chip, phase_of(chip, easy)), {});
  gpu.advance_to(Instant(10s));
  EXPECT_NEAR(gpu.tenant(first)->done, 5, 1e-6);
  EXPECT_NEAR(gpu.tenant(second)->done, 2.5, 1e-6);
  EXPECT_NEAR(gpu.power().value(), 150, 1e-9);
  EXPECT_EQ(gpu.sensors().gpu_utilisation(), percent(75));
  EXPECT_FALSE(gpu.sensors().memory_utilisation());  // unknown of one
  EXPECT_NEAR((gpu.tenant(first)->energy + gpu.tenant(second)->energy).value(),
              gpu.energy().value(), 1e-6);
}

TEST(SimGpuTenants, WhatEndsGivesItsSliceToTheOthers) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  const auto first = gpu.add(steady_work(chip, 100), 2s);
  const auto second = gpu.add(steady_work(chip, 100), 4s);
  gpu.advance_to(Instant(20s));
  EXPECT_NEAR(seconds(gpu.tenant(first)->finished->time_since_epoch()), 4, 0.02);
  EXPECT_NEAR(seconds(gpu.tenant(second)->finished->time_since_epoch()), 6, 0.02);
  EXPECT_FALSE(gpu.busy());
  gpu.remove(first);
  EXPECT_EQ(gpu.tenant(first), nullptr);
  EXPECT_NE(gpu.tenant(second), nullptr);
}

TEST(SimGpuTenants, OverlapLetsTwoRunBesideEachOther) {
  const SimChip chip = plain_chip();
  SimGpu gpu(chip, {});
  gpu.set_overlap(0.5);
  const auto first = gpu.add(work_of(chip, phase_of(chip, point_of(1, 200))), {});
  const auto second = gpu.add(work_of(chip, phase_of(chip, point_of(1, 100))), {});
  gpu.advance_to(Instant(10s));
  EXPECT_NEAR(gpu.tenant(first)->done, 7.5, 1e-6);
  EXPECT_NEAR(gpu.tenant(second)->done, 7.5, 1e-6);
  const double idle = chip.idle_power.at(chip.sm_clocks.back());
  EXPECT_NEAR(gpu.power().value(), idle + 0.75 * (200 - idle + 100 - idle), 1e-9);
}

// Of each sample all is one process's, and in the mean each has its share.
TEST(SimGpuTenants, ADriversSampleIsOneProcesss) {
  SimChip chip = plain_chip();
  chip.sensors.process_sample = 200ms;
  SimGpu gpu(chip, {});
  OperatingPoint busy = point_of(1, 200), easy = point_of(1, 100);
  busy.gpu_utilisation = easy.gpu_utilisation = Fraction(1);
  const auto first = gpu.add(work_of(chip, phase_of(chip, busy)), {});
  const auto second = gpu.add(work_of(chip, phase_of(chip, easy)), {});
  const auto used = [&](SimGpu::TenantId id) { return gpu.tenant(id)->sm_seconds.value(); };
  double before = 0;
  for (int i = 1; i <= 1000; ++i) {
    gpu.advance_to(Instant(i * 200ms));
    const double sample = used(first) - before;
    EXPECT_TRUE(std::abs(sample) < 1e-6 || std::abs(sample - 0.2) < 0.011) << sample;
    before = used(first);
  }
  EXPECT_NEAR(used(first) + used(second), 200, 0.3);
  EXPECT_NEAR(used(first), 100, 12);  // four standard deviations of 1000 draws
}

TEST(SimGpuTenants, WhatTheBoardDrawsBesidesIsNobodys) {
  const SimChip chip = plain_chip();
  for (const int jobs : {1, 2}) {
    SimGpu gpu(chip, {}), other(chip, {});
    gpu.set_board_extra(Watts(20));
    SimGpu::TenantId id = 0;
    for (int i = 0; i < jobs; ++i) {
      id = gpu.add(work_of(chip, phase_of(chip, point_of(1, 200))), {});
      other.add(work_of(chip, phase_of(chip, point_of(1, 200))), {});
    }
    gpu.advance_to(Instant(10s));
    other.advance_to(Instant(10s));
    EXPECT_NEAR(gpu.power().value(), other.power().value() + 20, 1e-9);
    EXPECT_NEAR(gpu.tenant(id)->above_base.value(), other.tenant(id)->above_base.value(), 1e-6);
  }
}

}  // namespace
}  // namespace derate
