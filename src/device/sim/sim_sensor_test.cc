#include "device/sim/sim_sensor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <set>

#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

constexpr Duration kStep = 10ms;

SensorSpec spec_of(const char* chip) { return plain(chip_named(chip)).sensors; }

SensorSpec utilisation_of(Duration refresh, Duration window, double noise) {
  SensorSpec spec = spec_of("V100-SXM2");
  spec.utilisation = {refresh, window, noise};
  return spec;
}

OperatingPoint busy_at(double share) {
  OperatingPoint point;
  point.gpu_utilisation = point.memory_utilisation = Fraction(share);
  return point;
}

double gpu_points(const SimSensors& sensors) {
  return as_percent(sensors.shown().gpu_utilisation.value_or(Fraction(-9)));
}

// --- utilisation ---------------------------------------------------------------------------------

// Against a model of one line: the mean of the last window, rounded, at every refresh.
RC_GTEST_PROP(SimSensorsProperty, UtilisationIsTheWindowsMeanAtEachRefresh, ()) {
  const int every = *rc::gen::inRange(1, 30), window = *rc::gen::inRange(1, 120);
  SimSensors sensors(utilisation_of(every * kStep, window * kStep, 0), kStep,
                     *rc::gen::arbitrary<std::uint64_t>());
  std::vector<int> points;
  int last_renewal = -1, level = 0;
  std::optional<Fraction> before;
  for (int i = 1; i <= 400; ++i) {
    if (*rc::gen::inRange(0, 10) == 0) level = *rc::gen::inRange(0, 101);
    points.push_back(level);
    sensors.step(busy_at(level / 100.0), 100_W);
    const auto shown = sensors.shown().gpu_utilisation;
    if (!shown) {
      RC_ASSERT(i < every);
      continue;
    }
    if (last_renewal < 0) last_renewal = i;
    if (shown != before) RC_ASSERT((i - last_renewal) % every == 0);
    if ((i - last_renewal) % every == 0) {
      const int n = std::min(window, i);
      double sum = 0;
      for (int k = i - n; k < i; ++k) sum += points[static_cast<std::size_t>(k)];
      RC_ASSERT(std::abs(as_percent(*shown) - sum / n) < 0.5 + 1e-6);
      RC_ASSERT(std::abs(as_percent(*shown) - std::round(as_percent(*shown))) < 1e-9);
    }
    before = shown;
  }
}

TEST(SimSensors, AStepOfUtilisationShowsAsARampOverTheWindow) {
  for (const Duration window : {Duration(167ms), Duration(1s)}) {
    SimSensors sensors(utilisation_of(10ms, window, 0), kStep, 1);
    for (int i = 0; i < 300; ++i) sensors.step(busy_at(0), 100_W);
    EXPECT_EQ(gpu_points(sensors), 0);
    for (int i = 1; i <= 200; ++i) {
      sensors.step(busy_at(0.8), 100_W);
      // Whole steps: 167 ms are 17 of them. Half a point for rounding.
      const double steps = std::round(seconds(window) / seconds(kStep));
      EXPECT_NEAR(gpu_points(sensors), 80 * std::min(1.0, i / steps), 0.5 + 1e-9) << i;
    }
  }
}

// 20,000 refreshes at 50 %: rounding adds 1/12, so the sd is sqrt(1 + 1/12) = 1.0408, good to
// sd / sqrt(2 x 20000) = 0.005; the mean to 0.0074; the lag-1 correlation to 0.007. Bounds: four.
TEST(SimSensors, UtilisationNoiseIsAsStatedAndIndependent) {
  SimSensors sensors(utilisation_of(10ms, 167ms, 1.0), kStep, 3);
  for (int i = 0; i < 100; ++i) sensors.step(busy_at(0.5), 100_W);
  const int n = 20000;
  double sum = 0, squares = 0, lagged = 0, before = 0;
  for (int i = 0; i < n; ++i) {
    sensors.step(busy_at(0.5), 100_W);
    const double off = gpu_points(sensors) - 50;
    sum += off;
    squares += off * off;
    lagged += off * before;
    before = off;
  }
  const double variance = squares / n - (sum / n) * (sum / n);
  EXPECT_NEAR(sum / n, 0, 0.03);
  EXPECT_NEAR(std::sqrt(variance), 1.0408, 0.02);
  EXPECT_NEAR(lagged / n / variance, 0, 0.03);
}

TEST(SimSensors, NoiseStaysBetweenNothingAndAll) {
  SimSensors sensors(utilisation_of(10ms, 10ms, 30), kStep, 3);
  std::set<double> seen;
  for (int i = 0; i < 2000; ++i) {
    sensors.step(busy_at(i % 2 == 0 ? 0.95 : 0.05), 100_W);
    seen.insert(gpu_points(sensors));
  }
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 100);
}

TEST(SimSensors, AnIdleGpuShowsNoNoise) {
  SimSensors sensors(utilisation_of(10ms, 10ms, 5), kStep, 3);
  for (int i = 0; i < 1000; ++i) {
    sensors.step(busy_at(0), 100_W);
    EXPECT_EQ(gpu_points(sensors), 0);
  }
}

TEST(SimSensors, UtilisationIsShownInStepsOfAChip) {
  SensorSpec spec = utilisation_of(10ms, 10ms, 0);
  spec.utilisation.step_points = 5;
  SimSensors sensors(spec, kStep, 3);
  for (int points = 0; points <= 100; ++points) {
    sensors.step(busy_at(points / 100.0), 100_W);
    EXPECT_NEAR(std::remainder(gpu_points(sensors), 5), 0, 1e-9) << points;
    EXPECT_NEAR(gpu_points(sensors), points, 2.5) << points;
  }
}

// Of a ramp of a point (a watt) each step the reading of a window of one step is late by the lag.
TEST(SimSensors, ALagShowsWhatWasTrueSoLongAgo) {
  SensorSpec spec = utilisation_of(10ms, 10ms, 0);
  spec.utilisation.lag = 200ms;
  spec.usage = {.refresh = 10ms, .window = 10ms, .lag = 300ms};
  SimSensors sensors(spec, kStep, 3);
  sensors.begin_in(busy_at(0), 7_W);
  for (int i = 1; i <= 90; ++i) {
    sensors.step(busy_at(i / 100.0), Watts(i));
    EXPECT_NEAR(gpu_points(sensors), std::max(0, i - 20), 1e-9) << i;
    EXPECT_NEAR(sensors.shown().power_usage->value(), i <= 30 ? 7 : i - 30, 1e-9) << i;
  }
}

TEST(SimSensors, PowerIsShownInStepsOfAChip) {
  SensorSpec spec = spec_of("V100-SXM2");
  spec.usage = {.refresh = 10ms, .window = 10ms, .step = 3_W};
  SimSensors sensors(spec, kStep, 3);
  for (int watts = 0; watts <= 100; ++watts) {
    sensors.step(busy_at(1), Watts(watts));
    EXPECT_EQ(std::remainder(sensors.shown().power_usage->value(), 3), 0) << watts;
    EXPECT_NEAR(sensors.shown().power_usage->value(), watts, 1.5) << watts;
  }
}

TEST(SimSensors, ACounterThatAChipDoesNotHaveIsNotShown) {
  SensorSpec spec = utilisation_of(10ms, 10ms, 0);
  spec.utilisation.memory = false;
  SimSensors sensors(spec, kStep, 3);
  sensors.begin_in(busy_at(0.5), 100_W);
  EXPECT_FALSE(sensors.shown().memory_utilisation);
  for (int i = 0; i < 20; ++i) sensors.step(busy_at(0.5), 100_W);
  EXPECT_EQ(sensors.shown().gpu_utilisation, percent(50));
  EXPECT_FALSE(sensors.shown().memory_utilisation);
}

TEST(SimSensors, UtilisationThatIsNotKnownThroughoutTheWindowIsNotShown) {
  SimSensors sensors(utilisation_of(10ms, 100ms, 0), kStep, 3);
  for (int i = 0; i < 20; ++i) sensors.step(OperatingPoint{}, 100_W);
  EXPECT_FALSE(sensors.shown().gpu_utilisation || sensors.shown().memory_utilisation);
  OperatingPoint half = busy_at(0.4);
  half.memory_utilisation.reset();
  for (int i = 0; i < 9; ++i) sensors.step(half, 100_W);
  EXPECT_FALSE(sensors.shown().gpu_utilisation);
  sensors.step(half, 100_W);
  EXPECT_EQ(sensors.shown().gpu_utilisation, percent(40));
  EXPECT_FALSE(sensors.shown().memory_utilisation);
}

TEST(SimSensors, NothingIsShownBeforeItWasMeasured) {
  for (const SimChip& chip : sim_chips()) {
    const SimSensors sensors(chip.sensors, kStep, 1);
    const auto shown = sensors.shown();
    EXPECT_FALSE(shown.gpu_utilisation || shown.memory_utilisation || shown.power_usage ||
                 shown.power_instant || shown.power_average);
    EXPECT_EQ(shown.energy, 0_J);
    EXPECT_EQ(shown.activity, Activity{});
  }
}

// --- power ---------------------------------------------------------------------------------------

// The A100 sees 25 ms of every 100: load of 50 ms period shows the same part of its wave for ever.
TEST(SimSensors, TheA100SensorAliasesLoadThatBeatsWithIt) {
  double worst = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimSensors sensors(spec_of("A100-SXM4"), 5ms, seed);
    std::set<double> seen;
    for (int i = 0; i < 2000; ++i) {
      sensors.step(busy_at(1), i / 5 % 2 == 0 ? 100_W : 300_W);
      if (i >= 100) seen.insert(std::round(sensors.shown().power_usage->value() * 1e6));
    }
    EXPECT_EQ(seen.size(), 1u);
    worst = std::max(worst, std::abs(*seen.begin() / 1e6 - 200));
  }
  // The mean is 200 W; 20 seeds have 20 chances to look at another part of the wave.
  EXPECT_GT(worst, 50);
}

TEST(SimSensors, TheV100SensorSeesTheNewest10Milliseconds) {
  SimSensors sensors(spec_of("V100-SXM2"), 5ms, 1);
  for (int i = 0; i < 100; ++i) sensors.step(busy_at(1), 100_W);
  EXPECT_EQ(sensors.shown().power_usage, 100_W);
  for (int i = 0; i < 6; ++i) sensors.step(busy_at(1), 300_W);  // 20 ms of refresh, 10 of window
  EXPECT_EQ(sensors.shown().power_usage, 300_W);
}

TEST(SimSensors, TheH200sAverageRampsOverASecondAndItsInstantPowerDoesNot) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SimSensors sensors(spec_of("H200"), kStep, seed);
    for (int i = 0; i < 300; ++i) sensors.step(busy_at(1), 100_W);
    EXPECT_NEAR(sensors.shown().power_average->value(), 100, 1e-9);
    for (int i = 1; i <= 150; ++i) {
      sensors.step(busy_at(1), 600_W);
      const double after = i * seconds(kStep);
      const double newest = 100 + 500 * std::min(1.0, after);
      const double oldest = 100 + 500 * std::clamp(after - 0.09, 0.0, 1.0);  // 10 steps a refresh
      const double average = sensors.shown().power_average->value();
      EXPECT_LE(average, newest + 1e-9) << i;
      EXPECT_GE(average, oldest - 1e-9) << i;
      EXPECT_LE(sensors.shown().power_usage->value(), newest + 1e-9) << i;
      if (i < 12) continue;
      EXPECT_NEAR(sensors.shown().power_instant->value(), 600, 1e-9) << i;
    }
    EXPECT_NEAR(sensors.shown().power_average->value(), 600, 1e-9);
  }
}

// A window longer than all others is kept whole.
TEST(SimSensors, AnyReadingMayHaveTheLongestWindow) {
  SensorSpec spec = spec_of("V100-SXM2");
  spec.instant = PowerSensorSpec{100ms, 3s, 0_W};
  SimSensors sensors(spec, kStep, 1);
  for (int i = 0; i < 3000; ++i) sensors.step(busy_at(1), i / 150 % 2 == 0 ? 100_W : 300_W);
  EXPECT_NEAR(sensors.shown().power_instant->value(), 200, 1e-9);
}

// 5,000 refreshes of 2 W: the sd is good to 2 / sqrt(10000) = 0.02 W; bounds are four times that.
TEST(SimSensors, PowerHasItsGainAndNoise) {
  SensorSpec spec = spec_of("V100-SXM2");
  spec.usage = {10ms, 10ms, 2_W};
  spec.power_gain = 1.05;
  SimSensors sensors(spec, kStep, 5);
  double sum = 0, squares = 0;
  for (int i = 0; i < 5000; ++i) {
    sensors.step(busy_at(1), 200_W);
    const double off = sensors.shown().power_usage->value() - 210;
    sum += off;
    squares += off * off;
  }
  EXPECT_NEAR(sum / 5000, 0, 0.12);
  EXPECT_NEAR(std::sqrt(squares / 5000), 2, 0.08);
  EXPECT_NEAR(sensors.shown().energy.value(), 210 * 50.0, 210 * 0.02);
}

// 5,000 refreshes of 1 % of 500 W: the sd is good to 5 / sqrt(10000) = 0.05 W.
TEST(SimSensors, PowerNoiseMayBeAShareOfTheReading) {
  SensorSpec spec = spec_of("V100-SXM2");
  spec.usage = {10ms, 10ms, 0_W, 0.01};
  for (const double watts : {500.0, 50.0}) {
    SimSensors sensors(spec, kStep, 5);
    double squares = 0;
    for (int i = 0; i < 5000; ++i) {
      sensors.step(busy_at(1), Watts(watts));
      squares += std::pow(sensors.shown().power_usage->value() - watts, 2);
    }
    EXPECT_NEAR(std::sqrt(squares / 5000), 0.01 * watts, 0.0004 * watts);
  }
}

// Noise belongs to the renewal, not to the reader.
TEST(SimSensors, AReadingIsTheSameHoweverOftenItIsRead) {
  const SensorSpec& spec = chip_named("H200").sensors;
  SimSensors often(spec, kStep, 3), seldom(spec, kStep, 3);
  for (int i = 1; i <= 1000; ++i) {
    often.step(busy_at(0.5), 400_W);
    seldom.step(busy_at(0.5), 400_W);
    (void)often.shown();
    if (i % 100 != 0) continue;
    EXPECT_EQ(often.shown().power_instant, seldom.shown().power_instant);
    EXPECT_EQ(often.shown().gpu_utilisation, seldom.shown().gpu_utilisation);
  }
}

TEST(SimSensors, AChipWithoutAFieldNeverShowsIt) {
  SimSensors sensors(spec_of("A100-SXM4"), kStep, 1);
  OperatingPoint point = busy_at(1);
  point.activity.sm = Fraction(0.5);
  for (int i = 0; i < 500; ++i) sensors.step(point, 100_W);
  EXPECT_FALSE(sensors.shown().power_instant || sensors.shown().power_average);
  EXPECT_EQ(sensors.shown().activity, Activity{});
}

// --- energy --------------------------------------------------------------------------------------

RC_GTEST_PROP(SimSensorsProperty, TheEnergyCounterStepsUpToTheTruth, ()) {
  const SimChip& chip = sim_chips()[*rc::gen::inRange<std::size_t>(0, sim_chips().size())];
  SimSensors sensors(chip.sensors, kStep, *rc::gen::arbitrary<std::uint64_t>());
  const int every = static_cast<int>(chip.sensors.energy_refresh / kStep);
  double truth = 0;
  Joules before{};
  int changed_at = 0;
  for (int i = 1; i <= 300; ++i) {
    const double watts = *rc::gen::inRange(30, 700);
    sensors.step(busy_at(1), Watts(watts));
    truth += watts * seconds(kStep);
    const Joules shown = sensors.shown().energy;
    RC_ASSERT(shown >= before);
    if (shown != before) {
      RC_ASSERT((changed_at == 0 || i - changed_at == every));
      changed_at = i;
      // Whole millijoules, none of them too many.
      RC_ASSERT(shown.value() <= truth + 1e-6);
      RC_ASSERT(shown.value() > truth - 0.001 - 1e-6);
    }
    before = shown;
  }
  RC_ASSERT(changed_at > 300 - every);
}

// --- activity ------------------------------------------------------------------------------------

TEST(SimSensors, ActivityIsTheMeanOfEachWindow) {
  SimSensors sensors(spec_of("H200"), kStep, 4);
  std::int64_t window = 0;
  double sum = 0;
  int steps = 0, windows = 0;
  for (int i = 0; i < 1000; ++i) {
    OperatingPoint point = busy_at(1);
    const double share = (i * 37 % 100) / 100.0;
    point.activity.dram = Fraction(share);
    sensors.step(point, 100_W);
    sum += share;
    ++steps;
    if (sensors.shown().activity_window == window) continue;
    if (window > 0) {  // the first one starts at the counter's own phase
      EXPECT_EQ(steps, 10);
      EXPECT_NEAR(sensors.shown().activity.dram->value(), sum / 10, 1e-12);
      EXPECT_FALSE(sensors.shown().activity.sm);
      ++windows;
    }
    window = sensors.shown().activity_window;
    sum = 0;
    steps = 0;
  }
  EXPECT_GE(windows, 98);
}

TEST(SimSensors, ActivityThatIsKnownForPartOfAWindowOnlyIsNotShown) {
  SimSensors sensors(spec_of("H200"), kStep, 4);
  OperatingPoint known = busy_at(1);
  known.activity.sm = Fraction(0.5);
  for (int i = 0; i < 50; ++i) sensors.step(known, 100_W);
  EXPECT_EQ(sensors.shown().activity.sm, Fraction(0.5));
  const std::int64_t window = sensors.shown().activity_window;
  while (sensors.shown().activity_window == window) sensors.step(known, 100_W);
  sensors.step(busy_at(1), 100_W);  // one step of ten
  while (sensors.shown().activity_window == window + 1) sensors.step(known, 100_W);
  EXPECT_FALSE(sensors.shown().activity.sm);
  while (sensors.shown().activity_window == window + 2) sensors.step(known, 100_W);
  EXPECT_EQ(sensors.shown().activity.sm, Fraction(0.5));
}

// 5,000 windows; a glitch is off by 19 to 51 %, and half of it the other way in the next one.
TEST(SimSensors, ActivityHasItsNoiseAndGlitches) {
  SensorSpec spec = spec_of("H200");
  spec.activity_noise = 0.005;
  spec.activity_glitches = 0.01;
  SimSensors sensors(spec, kStep, 4);
  OperatingPoint point = busy_at(1);
  point.activity.dram = point.activity.sm = Fraction(0.4);
  int windows = 0, off = 0;
  double squares = 0;
  std::int64_t window = 0;
  while (windows < 5000) {
    sensors.step(point, 100_W);
    if (sensors.activity_window() == window) continue;
    window = sensors.activity_window();
    if (++windows == 1) continue;
    const double dram = sensors.activity().dram->value() / 0.4 - 1;
    off += std::abs(dram) > 0.15 ? 1 : 0;
    EXPECT_LT(std::abs(dram), 0.55);
    squares += std::pow(sensors.activity().sm->value() / 0.4 - 1, 2);
  }
  EXPECT_NEAR(std::sqrt(squares / windows), 0.005, 0.0003);
  // 50 glitches and of most their neighbours; four standard deviations.
  EXPECT_GT(off, 50 - 28);
  EXPECT_LT(off, 100 + 40);
}

TEST(SimSensors, CountersHaveTheirGainAndLetItWander) {
  SensorSpec spec = utilisation_of(10ms, 10ms, 0);
  spec.counter_gain = 0.9;
  spec.counter_wander = 0.05;
  SimSensors sensors(spec, kStep, 3);
  double lowest = 100, highest = 0, sum = 0;
  for (int i = 0; i < 6000; ++i) {  // 60 s
    sensors.step(busy_at(0.8), 100_W);
    lowest = std::min(lowest, gpu_points(sensors));
    highest = std::max(highest, gpu_points(sensors));
    sum += gpu_points(sensors);
  }
  EXPECT_EQ(lowest, std::round(80 * 0.9 * 0.95));
  EXPECT_EQ(highest, std::round(80 * 0.9 * 1.05));
  EXPECT_NEAR(sum / 6000, 72, 0.1);
}

TEST(SimSensors, CountersStandStillForTheirTimeAndPowerDoesNot) {
  SensorSpec spec = utilisation_of(10ms, 10ms, 0);
  spec.frozen = {1s, 4s};
  SimSensors sensors(spec, kStep, 3);
  int repeats = 0, powers = 0;
  for (int i = 0; i < 4000; ++i) {
    const double before = gpu_points(sensors);
    const auto power = sensors.shown().power_usage;
    sensors.step(busy_at(i % 2 == 0 ? 0.2 : 0.8), Watts(100 + i));
    if (i > 10 && i % 2 == 0) powers += sensors.shown().power_usage != power ? 1 : 0;
    repeats += gpu_points(sensors) == before ? 1 : 0;
  }
  EXPECT_NEAR(repeats, 1000, 12);  // 100 steps of each 400; at each begin one more or less
  EXPECT_GT(powers, 900);          // renewed every second step
}

TEST(SimSensors, TheSeedDecidesTheStream) {
  const auto stream = [](std::uint64_t seed) {
    SimSensors sensors(chip_named("H200").sensors, kStep, seed);
    std::vector<double> out;
    for (int i = 0; i < 500; ++i) {
      sensors.step(busy_at(0.5), Watts(100 + i));
      out.push_back(sensors.shown().power_usage.value_or(Watts(-1)).value());
      out.push_back(gpu_points(sensors));
    }
    return out;
  };
  EXPECT_EQ(stream(1), stream(1));
  EXPECT_NE(stream(1), stream(2));
}

}  // namespace
}  // namespace derate
