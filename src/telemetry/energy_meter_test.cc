#include "telemetry/energy_meter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

Sample at(Duration time, std::optional<Watts> power, std::optional<Joules> energy = {}) {
  Sample sample;
  sample.time = Instant(time);
  sample.power_usage = power;
  sample.energy = energy;
  return sample;
}

TEST(EnergyMeter, KnowsNothingAtFirst) {
  EnergyMeter meter;
  EXPECT_FALSE(meter.total() || meter.integrated() || meter.mean_power());
  EXPECT_EQ(meter.elapsed(), 0s);
  EXPECT_FALSE(meter.from_counter());
  for (const Duration t : {0s, 1s}) meter.add(at(t, {}));
  EXPECT_FALSE(meter.total());
}

TEST(EnergyMeter, TheCounterCountsNotThePower) {
  EnergyMeter meter;
  meter.add(at(0s, 100_W, 5000_J));
  meter.add(at(500ms, 900_W));
  meter.add(at(1s, 100_W, 5150_J));
  EXPECT_EQ(meter.total(), 150_J);
  EXPECT_EQ(meter.mean_power(), 150_W);
  EXPECT_EQ(meter.integrated(), 500_J);  // 100 W, then 900 W, half a second each
  EXPECT_TRUE(meter.from_counter());
  EXPECT_EQ(meter.elapsed(), 1s);
}

TEST(EnergyMeter, BetweenReadingsOfTheCounterPowerFillsIn) {
  EnergyMeter meter;
  meter.add(at(0s, 100_W));
  meter.add(at(1s, 200_W, 10_J));  // 100 J by power before it
  meter.add(at(2s, 300_W, 260_J));
  EXPECT_EQ(meter.total(), 350_J);
  meter.add(at(2500ms, 300_W));  // and 150 J after it
  EXPECT_EQ(meter.total(), 500_J);
}

TEST(EnergyMeter, WithoutACounterEachPowerIsHeldUntilTheNext) {
  EnergyMeter meter;
  meter.add(at(0s, 100_W));
  meter.add(at(1s, 300_W));
  meter.add(at(3s, 50_W));
  EXPECT_EQ(meter.total(), 700_J);
  EXPECT_EQ(meter.integrated(), 700_J);
  EXPECT_FALSE(meter.from_counter());
  EXPECT_EQ(meter.uncovered(), 0s);
}

TEST(EnergyMeter, TakesTheQuickestPower) {
  EnergyMeter meter;
  Sample sample = at(0s, 100_W);
  sample.power_instant = 200_W;
  sample.power_average = 300_W;
  meter.add(sample);
  meter.add(at(1s, {}));
  EXPECT_EQ(meter.total(), 200_J);
}

TEST(EnergyMeter, ACounterThatGoesBackIsBridgedByPower) {
  EnergyMeter meter;
  meter.add(at(0s, 100_W, 1000_J));
  meter.add(at(1s, 100_W, 1090_J));
  meter.add(at(2s, 100_W, 5_J));  // the driver was loaded anew
  meter.add(at(3s, 100_W, 95_J));
  EXPECT_EQ(meter.total(), 280_J);
  EXPECT_EQ(meter.counter_resets(), 1);
  EXPECT_FALSE(meter.from_counter());
}

// Read faster than it is renewed, a counter stands still: that is no reset.
TEST(EnergyMeter, ACounterMayStandStill) {
  EnergyMeter meter;
  for (const double joules : {1000.0, 1000.0, 1090.0, 1090.0})
    meter.add(at(joules > 1000 ? 100ms : 50ms, 900_W, Joules(joules)));
  EXPECT_EQ(meter.total(), 90_J);
  EXPECT_TRUE(meter.from_counter());
}

// A board that draws 700 W does not use 0 J, whatever the counter shows.
TEST(EnergyMeter, ACounterThatStandsStillIsMissing) {
  EnergyMeter meter;
  for (Duration t{}; t <= 25s; t += 1s) meter.add(at(t, 700_W, 123456.789_J));
  EXPECT_NEAR(meter.total()->value(), 17500, 1e-6);
  EXPECT_FALSE(meter.from_counter());
  EXPECT_GE(meter.counter_still(), 20s);
  // The counter moves again from where it stood: the energy that it missed is not known.
  for (Duration t = 26s; t <= 35s; t += 1s)
    meter.add(at(t, 700_W, 123456.789_J + Joules(700 * seconds(t - 25s))));
  EXPECT_NEAR(meter.total()->value(), 24500, 1e-6);
}

TEST(EnergyMeter, ComparesTheCounterWithThePower) {
  EnergyMeter meter;
  for (Duration t{}; t <= 20s; t += 1s) meter.add(at(t, 100_W, Joules(1000 + 57 * seconds(t))));
  ASSERT_TRUE(meter.check_ratio());
  EXPECT_NEAR(*meter.check_ratio(), 100 / 57.0, 1e-9);
  EXPECT_FALSE(is_agreement(*meter.check_ratio()));
}

TEST(EnergyMeter, AHoleIsBridgedByTheCounterOnly) {
  EnergyMeter with, without;
  with.add(at(0s, 100_W, 0_J));
  with.add(at(10s, 100_W, 950_J));
  EXPECT_EQ(with.total(), 950_J);
  EXPECT_EQ(with.uncovered(), 0s);
  EXPECT_EQ(with.mean_power(), 95_W);

  for (const Duration t : {0s, 1s, 2s, 12s, 13s}) without.add(at(t, 100_W));
  EXPECT_EQ(without.total(), 500_J);  // the last reading before the gap is held for 2 s
  EXPECT_EQ(without.uncovered(), 8s);
  EXPECT_EQ(without.elapsed(), 13s);
  // Nobody knows what the hole took: the mean is over the time that is known.
  EXPECT_EQ(without.mean_power(), 100_W);
}

TEST(EnergyMeter, AHoleBeforeTheFirstCounterStaysAHole) {
  EnergyMeter meter;
  meter.add(at(0s, 100_W));
  meter.add(at(10s, 100_W, 700_J));
  meter.add(at(11s, 100_W, 800_J));
  EXPECT_EQ(meter.total(), 300_J);
  EXPECT_EQ(meter.uncovered(), 8s);
}

TEST(EnergyMeter, ASampleWithoutPowerIsAHoleToo) {
  EnergyMeter meter;
  meter.add(at(0s, 100_W));
  meter.add(at(1s, {}));
  meter.add(at(2s, 100_W));
  meter.add(at(3s, 100_W));
  EXPECT_EQ(meter.total(), 200_J);
  EXPECT_EQ(meter.uncovered(), 1s);
}

// A counter is exact whatever the sampling: only its first and last reading matter.
RC_GTEST_PROP(EnergyMeterProperty, APerfectCounterIsExact, (unsigned seed)) {
  std::mt19937_64 random(seed);
  const auto n = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  EnergyMeter meter;
  double joules = n(1000000);
  const double first = joules;
  Duration time{};
  const int samples = 2 + n(60);
  for (int i = 0; i < samples; ++i) {
    const bool end = i == 0 || i == samples - 1;
    std::optional<Watts> power;
    if (n(4) != 0) power = Watts(n(700));
    meter.add(at(time, power, end || n(3) == 0 ? std::optional(Joules(joules)) : std::nullopt));
    if (i == samples - 1) break;
    const Duration step = std::chrono::milliseconds(1 + n(5000));
    joules += (1 + n(700)) * seconds(step);  // a board always draws power
    time += step;
  }
  RC_ASSERT(std::abs(meter.total()->value() - (joules - first)) < 1e-6);
  RC_ASSERT(meter.from_counter());
  RC_ASSERT(meter.uncovered() == Duration::zero());
  RC_ASSERT(std::abs((*meter.mean_power() * time).value() - (joules - first)) < 1e-6);
}

// Constant power is integrated exactly where samples come in time.
RC_GTEST_PROP(EnergyMeterProperty, ConstantPowerIntegrates, (unsigned seed)) {
  std::mt19937_64 random(seed);
  EnergyMeter meter;
  Duration time{}, last{};
  for (int i = 0; i < 50; ++i) {
    meter.add(at(time, 250_W));
    last = time;
    time += std::chrono::milliseconds(1 + random() % 2000);
  }
  RC_ASSERT(std::abs(meter.total()->value() - 250 * seconds(last)) < 1e-6);
  RC_ASSERT(std::abs(meter.mean_power()->value() - 250) < 1e-6);
}

}  // namespace
}  // namespace derate
