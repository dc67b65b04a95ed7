#include "signal/progress_count.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace derate {
namespace {

using namespace std::chrono_literals;

Progress report(double done, Instant time, int unit = 0, std::uint64_t run = 0) {
  return {.unit = unit, .run = run, .done = done, .time = time};
}

RC_GTEST_PROP(ProgressCountProperty, WithinARunNeitherWorkNorTimeFalls, ()) {
  ProgressCount counts[2];
  std::uint64_t runs = 0;
  const int reports = *rc::gen::inRange(1, 100);
  for (int i = 0; i < reports; ++i) {
    ProgressCount& count = counts[*rc::gen::inRange(0, 2)];
    const auto before = count.last();
    const Progress now = report(*rc::gen::inRange(0, 5), Instant(1s * *rc::gen::inRange(0, 100)),
                                *rc::gen::inRange(0, 2), *rc::gen::element<std::uint64_t>(0, 7));
    const std::uint64_t runs_before = runs;
    count.add(now, runs);
    const auto& after = count.last();
    RC_ASSERT(after->done == now.done);
    RC_ASSERT(after->time == std::max(now.time, before ? before->time : Instant{}));
    const bool same_run = before && after->run == before->run;
    RC_ASSERT(runs == runs_before + (same_run ? 0 : 1));
    if (!same_run) RC_ASSERT(after->run == runs);  // a number that no other count has had
    if (same_run) RC_ASSERT(after->done >= before->done && after->unit == before->unit);
    RC_ASSERT(count.holds(after->time + 10s));
    RC_ASSERT(!count.holds(after->time + 601s));
  }
}

TEST(ProgressCount, OneThatComesSeldomHoldsForFiveOfItsIntervals) {
  ProgressCount count;
  std::uint64_t runs = 0;
  EXPECT_FALSE(count.holds(Instant{}));
  count.add(report(1, Instant(0s)), runs);
  EXPECT_EQ(count.patience(), 10s);
  count.add(report(2, Instant(30s)), runs);
  EXPECT_EQ(count.patience(), 150s);
  count.add(report(3, Instant(1000s)), runs);
  EXPECT_EQ(count.patience(), 600s);
}

TEST(ProgressRate, IsThatOfOneRunAtOneClock) {
  ProgressRate rate;
  EXPECT_FALSE(rate.rate(report(10, Instant(1s)), Instant(0s)));
  EXPECT_EQ(rate.rate(report(16, Instant(3s)), Instant(0s)), 3);
  EXPECT_EQ(rate.interval(), 2s);
  EXPECT_FALSE(rate.rate(report(16, Instant(3s)), Instant(0s)));        // nothing new
  EXPECT_FALSE(rate.rate(report(20, Instant(4s)), Instant(3s + 1ms)));  // another clock
  EXPECT_FALSE(rate.rate(report(26, Instant(6s), 0, 2), Instant(0s)));  // another run
  EXPECT_EQ(rate.rate(report(30, Instant(8s), 0, 2), Instant(0s)), 2);
  EXPECT_FALSE(rate.rate(std::nullopt, Instant(0s)));
  EXPECT_FALSE(rate.rate(report(40, Instant(9s), 0, 2), Instant(0s)));
}

}  // namespace
}  // namespace derate
