#include "policy/slo/clock_charge.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

EngineDelta delta_of(std::vector<double> counts) {
  EngineDelta out;
  out.edges_s = {0.05, 0.1, 0.2};
  out.between_tokens = std::move(counts);
  return out;
}

TEST(ClockCharge, AtTheHighestClockNothingIsTheClocks) {
  ClockHistory clocks;
  clocks.add(Instant(0s), 1);
  const auto late =
      late_tokens(delta_of({50, 20, 20, 10}), 0.05, clocks, Instant(10s), Instant(11s));
  EXPECT_EQ(late.tokens, 100);
  EXPECT_EQ(late.late, 50);
  EXPECT_EQ(late.caused, 0);
  EXPECT_EQ(late.caused_most, 0);
}

// At 0.8 of the clock an interval of 60 ms would have taken 48 ms at least, one of 70 ms 56 ms.
TEST(ClockCharge, OnlyWhatWouldHaveBeenInTimeIsTheClocks) {
  ClockHistory clocks;
  clocks.add(Instant(0s), 0.8);
  const auto late =
      late_tokens(delta_of({0, 100, 100, 100}), 0.05, clocks, Instant(10s), Instant(11s));
  EXPECT_EQ(late.late, 300);
  EXPECT_NEAR(late.caused, 25, 1e-9);  // from 50 to 62.5 ms, of 50 to 100
  EXPECT_EQ(late.caused_most, 100);
}

// A clock that was low only before an interval began has no part in it.
TEST(ClockCharge, ALowClockBeforeIsNotCounted) {
  ClockHistory clocks;
  clocks.add(Instant(0s), 0.5);
  clocks.add(Instant(9s), 1);
  const auto late = late_tokens(delta_of({0, 10, 0, 0}), 0.05, clocks, Instant(10s), Instant(11s));
  EXPECT_EQ(late.caused_most, 0);
}

// However the clock was: what is the clocks is at most what is late, and the most at least the
// estimate.
RC_GTEST_PROP(ClockCharge, IsAtMostWhatIsLate, ()) {
  ClockHistory clocks;
  Instant at{};
  for (const int share : *rc::gen::container<std::vector<int>>(20, rc::gen::inRange(30, 101)))
    clocks.add(at += 300ms, share / 100.0);
  const auto counts = *rc::gen::container<std::vector<int>>(4, rc::gen::inRange(0, 50));
  const auto late = late_tokens(delta_of({counts.begin(), counts.end()}),
                                *rc::gen::element(0.05, 0.1, 0.2), clocks, at - 1s, at);
  RC_ASSERT(late.caused >= 0 && late.caused <= late.caused_most);
  RC_ASSERT(late.caused_most <= late.late && late.late <= late.tokens);
}

}  // namespace
}  // namespace derate
