#include "lab/forecast_judge.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

Plan plan_of(const char* chip, std::vector<std::string> workloads, const char* policy) {
  Experiment experiment;
  experiment.chips = {chip};
  experiment.fitted = std::move(workloads);
  experiment.repetitions = 1;
  experiment.policies = {{.policy = policy, .label = policy, .set = {}, .where = "here"}};
  return *make_plan(experiment, "");
}

// Work that follows the clock, and work that does not.
TEST(ForecastJudge, MeasuresWhatComes) {
  const double deltas[] = {0.05, 0.2};
  const auto judged = judge_forecasts(plan_of("V100-SXM2", {"GeMM", "FDTD"}, "assure"), deltas);
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  ASSERT_EQ(judged->size(), 4u);
  for (const JudgedForecast& one : *judged) {
    SCOPED_TRACE(one.app);
    ASSERT_TRUE(one.forecast);
    EXPECT_NEAR(one.forecast->clock.value() / one.clock_mhz, 1, 0.04);
    EXPECT_NEAR(one.forecast->loss.mean, one.loss, 0.06);
    EXPECT_NEAR(one.forecast->saving.mean, one.saving, 0.06);
    EXPECT_LT(one.loss, one.delta + 0.005);
    EXPECT_GT(one.saving, 0.03);
  }
}

TEST(ForecastJudge, APolicyWithoutCurvesSaysNothing) {
  const double deltas[] = {0.1};
  const auto judged = judge_forecasts(plan_of("V100-SXM2", {"GeMM"}, "geepafs"), deltas);
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  EXPECT_FALSE(judged->front().forecast);
}

}  // namespace
}  // namespace derate
