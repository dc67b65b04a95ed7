#include "policy/assure/change_watch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "policy/registry/test_policy.h"

namespace derate {
namespace {

// Readings until the alarm; -1 when none comes.
template <class Next>
int until_alarm(int most, Next&& next) {
  ChangeWatch watch;
  for (int i = 0; i < most; ++i) {
    const Estimate estimate = next(i);
    if (watch.add(estimate, read_signals(estimate, Megahertz(1530)))) return i;
  }
  return -1;
}

Estimate noisy(std::mt19937_64& random, double gpu, double memory, double watts) {
  std::normal_distribution<double> point(0, 1);
  return test_reading(1530, static_cast<int>(std::clamp(gpu + point(random), 0.0, 100.0)),
                      static_cast<int>(std::clamp(memory + point(random), 0.0, 100.0)),
                      watts * (1 + 0.005 * point(random)));
}

TEST(ChangeWatch, SteadyWorkRaisesNoAlarmForHours) {
  std::mt19937_64 random(1);
  EXPECT_EQ(until_alarm(50'000, [&](int) { return noisy(random, 98, 47, 200); }), -1);
}

// A jump of any kind is seen within three readings. A case in which noise alone gave an alarm
// before is discarded: how rare that is the test above says, and too many discards are a failure.
RC_GTEST_PROP(ChangeWatchProperty, AJumpIsSeenAtOnce, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const int what = *rc::gen::inRange(0, 3), at = *rc::gen::inRange(5, 100);
  const double up = *rc::gen::arbitrary<bool>() ? 1 : -1;
  const int alarm = until_alarm(120, [&](int i) {
    const double by = i < at ? 0 : up;
    return noisy(random, 60 + (what == 0 ? 30 * by : 0), 50 + (what == 1 ? 25 * by : 0),
                 200 * (1 + (what == 2 ? 0.45 * by : 0)));
  });
  RC_PRE(alarm < 0 || alarm >= at);
  RC_ASSERT(alarm >= at && alarm <= at + 2);
}

TEST(ChangeWatch, OneOddReadingIsNoChange) {
  std::mt19937_64 random(2);
  EXPECT_EQ(until_alarm(200, [&](int i) { return noisy(random, 98, i % 40 == 30 ? 95 : 47, 200); }),
            -1);
}

TEST(ChangeWatch, AnotherClockIsAnotherComparison) {
  std::mt19937_64 random(3);
  ChangeWatch watch;
  for (const double memory : {80.0, 40.0, 60.0}) {
    watch.clear();
    for (int i = 0; i < 30; ++i) {
      const Estimate estimate = noisy(random, 98, memory, 100 + memory);
      EXPECT_FALSE(watch.add(estimate, read_signals(estimate, Megahertz(1530))));
    }
  }
}

}  // namespace
}  // namespace derate
