#include "lab/saving_judge.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

JudgedSaving judged(double truth, double low, double mean, double high) {
  return {.app = "a",
          .saving = truth,
          .performance = 1,
          .saving_estimate = ShareEstimate{mean, low, high},
          .performance_estimate = {}};
}

TEST(SavingJudge, SumsUpErrorsAndWhatTheIntervalsHold) {
  SavingFigures figures;
  for (int i = 0; i < 8; ++i) figures.jobs.push_back(judged(0.20, 0.18, 0.21, 0.24));
  figures.jobs.push_back(judged(0.30, 0.20, 0.22, 0.24));  // out, by 8 points
  figures.jobs.push_back(judged(0.20, 0.19, 0.22, 0.25));
  figures.jobs.push_back({.app = "b", .saving = 0.5, .performance = 1});  // not estimated
  sum_up(figures);
  EXPECT_EQ(figures.unknown, 1);
  EXPECT_NEAR(figures.truth, 0.21, 1e-12);
  EXPECT_NEAR(figures.bias, (8 * 0.01 - 0.08 + 0.02) / 10, 1e-12);
  EXPECT_NEAR(figures.nine_in_ten, 0.02, 1e-12);
  EXPECT_NEAR(figures.covered, 0.9, 1e-12);
}

TEST(SavingJudge, WithoutAnEstimateThereAreNoFigures) {
  SavingFigures figures;
  figures.jobs.push_back({.app = "b", .saving = 0.5, .performance = 1});
  sum_up(figures);
  EXPECT_EQ(figures.unknown, 1);
  EXPECT_EQ(figures.covered, 0);
}

}  // namespace
}  // namespace derate
