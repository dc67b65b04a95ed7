#include "policy/assure/watch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

using namespace std::chrono_literals;

Instant alarm_at(double s) { return Instant{} + from_seconds(s); }

// Alarms at even distances, of which the job's start is one.
PhaseWatch after_alarms(int count, double apart) {
  PhaseWatch watch;
  watch.begin(alarm_at(0));
  for (int i = 1; i <= count; ++i) watch.alarm(alarm_at(i * apart), 500ms);
  return watch;
}

// The more closely alarms follow each other, the less is held apart.
RC_GTEST_PROP(PhaseWatch, ShortPhasesAreAMixtureAndShorterOnesAreOne, ()) {
  const double apart = *rc::gen::inRange(1, 100) / 10.0;
  const PhaseWatch watch = after_alarms(6, apart);
  RC_ASSERT(watch.restless == (apart < kFollowed));
  RC_ASSERT(watch.mixed == (apart < kToldApart));
  RC_ASSERT(watch.phases_take_turns() == (apart < kFollowed));
}

TEST(PhaseWatch, WhatTheCountersWindowCannotFollowIsAMixture) {
  PhaseWatch watch;
  watch.begin(alarm_at(0));
  for (const double s : {6.0, 12.0, 18.0}) watch.alarm(alarm_at(s), 2s);
  EXPECT_TRUE(watch.restless);
  EXPECT_FALSE(watch.mixed);
}

TEST(PhaseWatch, AWhileWithoutAnAlarmEndsTheMixture) {
  PhaseWatch watch = after_alarms(6, 0.5);
  watch.rest(alarm_at(3 + 20));
  EXPECT_TRUE(watch.mixed);
  watch.rest(alarm_at(3 + 20.1));
  EXPECT_FALSE(watch.restless || watch.mixed);
}

TEST(PhaseWatch, ANewJobHasNoAlarmsButItsStart) {
  PhaseWatch watch = after_alarms(6, 0.5);
  watch.begin(alarm_at(9));
  EXPECT_EQ(watch.alarms, std::vector{alarm_at(9)});
  EXPECT_FALSE(watch.restless || watch.mixed || watch.phases_take_turns());
}

class Drift : public ::testing::Test {
 protected:
  Drift() { learn(phase_, look_, {}); }
  static double noise(int i) { return 1 + 0.002 * std::sin(i * i); }
  static ReadingBatch read() {
    ReadingBatch out;
    for (int i = 0; i < 20; ++i) out.of(Signal::dram).add(0.5 * noise(i));
    return out;
  }
  // Readings of so much more until the watch notices; 200: it does not.
  int until_drift(double factor) {
    for (int i = 0; i < 200; ++i) {
      SignalValues newest;
      newest[static_cast<std::size_t>(Signal::dram)] = 0.5 * factor * noise(i);
      if (watch_.drifts(phase_, look_, newest)) return i;
    }
    return 200;
  }
  ReadingBatch look_ = read();
  WorkPhase phase_ = make_phase(look_, Megahertz(1980), curve_priors("H200"));
  PhaseWatch watch_;
};

TEST_F(Drift, ReadingsThatTheCurveExpectsAreTheSameWork) { EXPECT_EQ(until_drift(1), 200); }
TEST_F(Drift, ReadingsOfOtherWorkAreSeen) {
  EXPECT_LT(until_drift(1.1), 20);
  watch_.clear();
  EXPECT_LT(until_drift(0.9), 20);
}

}  // namespace
}  // namespace derate
