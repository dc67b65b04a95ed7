#include "tune/trial_rate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>

namespace derate {
namespace {

using namespace std::chrono_literals;

// However begins come, a user has no more of them in any minute than twice the limit (a full pause
// and the minute itself), and who keeps below the limit is never refused.
RC_GTEST_PROP(TrialRate, BoundsEachUserAndNobodyElse, ()) {
  TrialRate rate;
  Instant now{};
  std::deque<Instant> begun;
  const int steps = *rc::gen::inRange(1, 600);
  const auto pause = *rc::gen::element<Duration>(0ms, 10ms, 499ms, 500ms, 2s);
  for (int i = 0; i < steps; ++i) {
    now += pause;
    const auto done = rate.take(1000, now);
    if (done.ok()) begun.push_back(now);
    if (pause >= 500ms) RC_ASSERT(done.ok());
    if (!done.ok()) RC_ASSERT(done.error().code == Errc::busy);
    while (now - begun.front() >= 60s) begun.pop_front();
    RC_ASSERT(begun.size() <= 2u * TrialRate::kMostAMinute);
    RC_ASSERT(rate.take(0, now).ok());
  }
  RC_ASSERT(rate.take(1001, now).ok());
}

TEST(TrialRate, SaysWhenAndForgetsWhoIsGone) {
  TrialRate rate;
  Instant now{};
  for (int i = 0; i < TrialRate::kMostAMinute; ++i) ASSERT_TRUE(rate.take(7, now).ok());
  EXPECT_EQ(rate.take(7, now).error().message,
            "user 7 began 120 trials in a minute, no more are allowed: the next in 0.5 s");
  EXPECT_TRUE(rate.take(7, now += 500ms).ok());
  for (std::uint32_t uid = 1; uid < 1000; ++uid) (void)rate.take(uid, now).ok();
  EXPECT_TRUE(rate.take(2000, now += 60s).ok());
  EXPECT_EQ(rate.users(), 1u);
}

}  // namespace
}  // namespace derate
