#include "tune/work_meter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

using namespace std::chrono_literals;

Instant at(double s) { return Instant(from_seconds(s)); }

WorkSpan span_of(double begin, double time, double work, double watts) {
  return {at(begin), at(begin + time), work, Joules(watts * time)};
}

// Steady work at steady power: whatever the rounds and reports, the spans have the rate and power.
RC_GTEST_PROP(SpanMaker, SpansOfSteadyWorkAreItsRateAndPower, ()) {
  SpanMaker maker;
  double now = 0, reported = -1, sum = 0;
  const int rounds = *rc::gen::inRange(2, 100);
  for (int i = 0; i < rounds; ++i) {
    now += *rc::gen::inRange(1, 200) / 100.0;
    std::optional<Joules> energy;
    if (*rc::gen::inRange(0, 4) > 0) energy = Joules(250 * now);
    if (*rc::gen::inRange(0, 3) > 0) reported = std::max(reported, now - 0.005);
    std::optional<Progress> work;
    if (reported >= 0) work = Progress{.run = 1, .done = 7 * reported, .time = at(reported)};
    const auto span = maker.add(at(now), energy, work);
    if (!span) continue;
    RC_ASSERT(std::abs(span->work / seconds(span->time()) - 7) < 1e-6);
    RC_ASSERT(std::abs((span->energy / span->time()).value() - 250) < 1e-3);
    sum += span->work;
  }
  RC_ASSERT(sum <= 7 * now);
}

TEST(SpanMaker, BeginsAnewWithAnotherSourceAndWithACountThatFalls) {
  SpanMaker maker;
  const auto add = [&](double time, std::uint64_t source, double done) {
    return maker
        .add(at(time), Joules(time), Progress{.run = source, .done = done, .time = at(time)})
        .has_value();
  };
  EXPECT_FALSE(add(1, 1, 10));
  EXPECT_TRUE(add(2, 1, 20));
  EXPECT_FALSE(add(3, 1, 20));  // no progress
  EXPECT_FALSE(add(4, 2, 30));
  EXPECT_TRUE(add(5, 2, 31));
  EXPECT_FALSE(add(6, 2, 3));
  EXPECT_TRUE(add(7, 2, 4));
}

TEST(SpanMaker, WaitsForTheJoulesUpToAReport) {
  SpanMaker maker;
  (void)maker.add(at(0), Joules(0), Progress{.run = 1, .done = 0, .time = at(0)});
  const Progress report{.run = 1, .done = 5, .time = at(1)};
  EXPECT_FALSE(maker.add(at(1.1), {}, report));
  const auto span = maker.add(at(2), Joules(200), report);
  ASSERT_TRUE(span);
  EXPECT_DOUBLE_EQ(span->energy.value(), 100);  // half way between the two rounds
}

TEST(WorkMeter, LeavesPausesOutAndCountsThem) {
  WorkMeter meter;
  for (int i = 0; i < 10; ++i) meter.add(i == 4 ? span_of(i, 20, 5, 60) : span_of(i, 1, 5, 200));
  const auto measure = meter.measure();
  ASSERT_TRUE(measure);
  EXPECT_NEAR(measure->rate, 5, 1e-9);
  EXPECT_NEAR(measure->power.value(), 200, 1e-9);
  EXPECT_EQ(meter.pauses().time(), 20s);
  EXPECT_NEAR(meter.pauses().energy.value(), 1200, 1e-9);
}

TEST(WorkMeter, DropsWhatCameBeforeAStep) {
  WorkMeter meter;
  for (int i = 0; i < 6; ++i) meter.add(span_of(i, 1, 3, 150));  // warms up
  for (int i = 0; i < 10; ++i) meter.add(span_of(6 + i, 1, 5, 200));
  EXPECT_NEAR(meter.measure()->rate, 5, 1e-9);
  EXPECT_NEAR(meter.measure()->power.value(), 200, 1e-9);
}

// By hand: blocks of 1 s with 9, 11, 9, 11 units. The mean is 10, the deviations of time from
// work / 10 are 0.1 s: sqrt(4 * 0.01 * 4 / 3) / 4 = 0.0577.
TEST(WorkMeter, TellsItsError) {
  WorkMeter meter;
  for (int i = 0; i < 4; ++i) meter.add(span_of(i, 1, i % 2 ? 11 : 9, 100));
  ASSERT_TRUE(meter.measure()->error);
  EXPECT_NEAR(*meter.measure()->error, 0.0577, 1e-4);
}

TEST(WorkMeter, TellsNoErrorOfTwoBlocks) {
  WorkMeter meter;
  EXPECT_FALSE(meter.measure());
  for (int i = 0; i < 2; ++i) meter.add(span_of(i, 1, 9 + i, 100));
  EXPECT_FALSE(meter.measure()->error);
}

}  // namespace
}  // namespace derate
