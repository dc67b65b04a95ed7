#include "pace.h"

#include <gtest/gtest.h>

namespace derate::bench_cuda {
namespace {

TEST(Pace, BatchesAreWholeSteps) {
  EXPECT_EQ(steps_in(0.025, 0.001), 25);
  EXPECT_EQ(steps_in(0.025, 0.5), 1);
}

TEST(Pace, PhasesTakeTheirShareOfEachPeriod) {
  Options options;
  options.period_seconds = 10;
  options.duty = 0.3;
  EXPECT_EQ(kind_at(0, 2, options).phase, 0u);
  EXPECT_EQ(kind_at(2.9, 2, options).phase, 0u);
  EXPECT_EQ(kind_at(3.1, 2, options).phase, 1u);
  EXPECT_EQ(kind_at(10.1, 2, options).phase, 0u);
  EXPECT_EQ(kind_at(5, 1, options).phase, 0u);
}

TEST(Pace, DutyZeroAndOneHaveOnePhase) {
  Options options;
  for (const double seconds : {0.0, 3.0, 9.99, 10.0}) {
    options.duty = 0;
    EXPECT_EQ(kind_at(seconds, 2, options).phase, 1u);
    options.duty = 1;
    EXPECT_EQ(kind_at(seconds, 2, options).phase, 0u);
  }
}

TEST(Pace, LevelsOfDataTakeTurns) {
  Options options;
  const auto data_at = [&](double seconds) { return kind_at(seconds, 1, options).data; };
  EXPECT_EQ(data_at(1e6), 1);
  options.data = {0, 0.5, 1};
  options.data_seconds = 2;
  EXPECT_EQ(data_at(0), 0);
  EXPECT_EQ(data_at(1.99), 0);
  EXPECT_EQ(data_at(2), 0.5);
  EXPECT_EQ(data_at(5.9), 1);
  EXPECT_EQ(data_at(6.1), 0);
}

TEST(Pace, HeatHasTheSameDataOrItsOwn) {
  Options options;
  options.data = {0, 1};
  EXPECT_EQ(kind_at(11, 1, options).heat_data, 1);
  options.heat_data = {0.5, 0.75, 0.25};
  EXPECT_EQ(kind_at(1, 1, options).heat_data, 0.5);
  EXPECT_EQ(kind_at(11, 1, options).heat_data, 0.75);
  EXPECT_EQ(kind_at(11, 1, options).data, 1);
}

TEST(Pace, TimeEndsARun) {
  Options options;
  options.seconds = 2;
  EXPECT_EQ(next_steps(1.9, 0, 1, 10, options), 10);
  EXPECT_EQ(next_steps(2.0, 0, 1, 10, options), 0);
}

TEST(Pace, WorkEndsARunWithNoStepTooMany) {
  Options options;
  options.work = 1;
  double queued = 0;
  int steps = 0;
  while (const auto next = next_steps(0, queued, 0.1, 4, options)) {
    queued += 0.1 * double(next);
    steps += int(next);
  }
  EXPECT_EQ(steps, 10);
}

TEST(Pace, EverySecondIsReported) {
  Tally tally = begin_tally(1, 100);
  EXPECT_FALSE(add_batch(tally, {0}, 3, 100.6));
  const auto report = add_batch(tally, {0}, 3, 101.2);
  ASSERT_TRUE(report);
  EXPECT_DOUBLE_EQ(report->work, 6);
  EXPECT_DOUBLE_EQ(report->end_seconds, 101.2);
  EXPECT_NEAR(report->rate(), 5, 1e-9);
  EXPECT_FALSE(add_batch(tally, {0}, 3, 101.8));
  EXPECT_DOUBLE_EQ(tally.whole.work, 9);
  EXPECT_NEAR(tally.whole.seconds(), 1.8, 1e-9);
}

TEST(Pace, AChangeOfPhaseIsReportedAndNotMixed) {
  Tally tally = begin_tally(2, 0);
  EXPECT_FALSE(add_batch(tally, {0}, 5, 0.5));
  const auto report = add_batch(tally, {1}, 7, 0.7);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->kind.phase, 0u);
  EXPECT_DOUBLE_EQ(report->work, 5);
  EXPECT_DOUBLE_EQ(report->end_seconds, 0.5);
  EXPECT_EQ(tally.open.kind.phase, 1u);
  EXPECT_DOUBLE_EQ(tally.open.work, 7);
  EXPECT_NEAR(tally.of_phases[1].seconds(), 0.2, 1e-9);
  EXPECT_DOUBLE_EQ(tally.of_phases[1].work, 7);
}

TEST(Pace, AChangeOfDataIsReportedAndNotMixed) {
  Tally tally = begin_tally(1, 0);
  EXPECT_FALSE(add_batch(tally, {0, 1}, 0, 0));
  EXPECT_FALSE(add_batch(tally, {0, 1}, 5, 0.5));
  const auto report = add_batch(tally, {0, 0.25}, 7, 0.7);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->kind.data, 1);
  EXPECT_DOUBLE_EQ(report->work, 5);
  EXPECT_EQ(tally.open.kind.data, 0.25);
  EXPECT_DOUBLE_EQ(tally.open.work, 7);
  EXPECT_NEAR(tally.of_phases[0].seconds(), 0.7, 1e-9);
}

TEST(Pace, AFirstBatchOfTheSecondPhaseReportsNothing) {
  Tally tally = begin_tally(2, 0);
  EXPECT_FALSE(add_batch(tally, {1}, 5, 0.5));
}

}  // namespace
}  // namespace derate::bench_cuda
