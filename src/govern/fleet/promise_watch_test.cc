#include "govern/fleet/promise_watch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 100ms;

PromiseReading at_work(double estimated, double promised = 0.9) {
  return {PromiseState::kept, {estimated, promised}, false};
}

// Takes that reading for that long, in ticks; the states that it came to, one after the other.
std::vector<PromiseState> run(PromiseWatch& watch, const PromiseReading& reading, Duration time) {
  std::vector<PromiseState> out;
  for (Duration at{}; at < time; at += kTick) {
    watch.take(reading, kTick);
    const PromiseState state = watch.now().state;
    if (out.empty() || out.back() != state) out.push_back(state);
  }
  return out;
}

using States = std::vector<PromiseState>;
constexpr auto kKept = PromiseState::kept, kBelow = PromiseState::below,
               kBroken = PromiseState::broken, kNone = PromiseState::none,
               kNotKnown = PromiseState::not_known;

TEST(PromiseWatch, IsBelowThenBrokenThenKeptAgain) {
  PromiseWatch watch;
  EXPECT_EQ(run(watch, at_work(0.9), 1s), States{kKept});
  EXPECT_EQ(run(watch, at_work(0.8), 29s), (States{kKept, kBelow}));
  EXPECT_NEAR(seconds(watch.now().below), 29, 0.3);
  EXPECT_NEAR(watch.now().performance.value(), 0.8, 1e-9);
  EXPECT_NEAR(watch.now().promised.value(), 0.9, 1e-9);
  EXPECT_EQ(run(watch, at_work(0.8), 10min), (States{kBelow, kBroken}));
  EXPECT_GT(watch.now().below, Duration(10min));
  // No more than 0.3 s of work is missing, which takes a minute at the promise.
  EXPECT_EQ(run(watch, at_work(0.9), 55s), States{kBroken});
  EXPECT_EQ(run(watch, at_work(0.9), 10s), (States{kBroken, kKept}));
  EXPECT_EQ(watch.now().below, Duration());
}

TEST(PromiseWatch, AnEstimateAtThePromiseIsKept) {
  PromiseWatch watch;
  EXPECT_EQ(run(watch, at_work(0.9 - PromiseWatch::kGrace + 1e-6), 1h), States{kKept});
  EXPECT_EQ(run(watch, at_work(0.9 - PromiseWatch::kGrace - 1e-3), 1h),
            (States{kKept, kBelow, kBroken}));
}

TEST(PromiseWatch, WorkBeyondThePromiseMayBeSpent) {
  PromiseWatch watch;
  (void)run(watch, at_work(1.0), 15s);                       // 1.5 s
  EXPECT_EQ(run(watch, at_work(0.85), 33s), States{kKept});  // spends 0.045 s a second
  EXPECT_EQ(run(watch, at_work(0.85), 2s), (States{kKept, kBelow}));
}

TEST(PromiseWatch, EndedWorkAndAnotherPromiseBeginAnew) {
  PromiseWatch watch;
  (void)run(watch, at_work(0.8), 1min);
  EXPECT_EQ(watch.now().state, kBroken);
  watch.take({kKept, {}, true}, kTick);
  EXPECT_EQ(watch.now().state, kKept);
  (void)run(watch, at_work(0.8), 1min);
  watch.take(at_work(0.8, 0.7), kTick);
  EXPECT_EQ(watch.now().state, kKept);
  watch.take({kNone, {}, false}, kTick);
  EXPECT_EQ(watch.now(), PromiseNow{});
}

TEST(PromiseWatch, ATimeThatIsNotKnownCountsForNothing) {
  PromiseWatch watch;
  (void)run(watch, at_work(0.8), 10s);
  const Duration below = watch.now().below;
  watch.take({kNotKnown, {}, false}, kTick);
  EXPECT_EQ(run(watch, {kNotKnown, {std::nullopt, 0.9}, false}, 1h), States{kNotKnown});
  watch.take(at_work(0.8), kTick);
  EXPECT_EQ(watch.now().state, kBelow);
  EXPECT_NEAR(seconds(watch.now().below), seconds(below), 0.15);
}

// However performance moves: a promise is below before it is broken, and broken only after the
// time that the definition says.
RC_GTEST_PROP(PromiseWatch, StatesFollowTheTimeBelow, ()) {
  PromiseWatch watch;
  const auto levels =
      *rc::gen::container<std::vector<int>>(600, rc::gen::inRange(80, 101));  // a second each
  PromiseState before = kKept;
  for (const int level : levels)
    for (int i = 0; i < 10; ++i) {
      watch.take(at_work(level / 100.0), kTick);
      const PromiseNow now = watch.now();
      RC_ASSERT(now.is_below() == (now.below > Duration()));
      RC_ASSERT((now.state == kBroken) == (now.below >= PromiseWatch::kBrokenAfter));
      RC_ASSERT(now.state != kBroken || before != kKept);
      if (now.is_below()) RC_ASSERT(now.performance.value() < now.promised.value());
      before = now.state;
    }
}

}  // namespace
}  // namespace derate
