#include "signal/readings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace derate {
namespace {

// Of readings that are rounded to `grain`, with noise of that sd: the relative sd of their mean,
// and its error, on average over levels.
struct Errors {
  double claimed = 0, made = 0;
};

Errors errors_of(double grain, double noise_sd, int count) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(0, noise_sd);
  double claimed = 0, made = 0;
  constexpr int kLevels = 400;
  for (int level = 0; level < kLevels; ++level) {
    const double truth = 0.4 + 0.1 * level / kLevels;
    Readings readings;
    for (int i = 0; i < 40; ++i)  // at other levels, by which the grain is learned
      readings.add(grain * std::round((0.3 + 0.01 * i) / grain));
    readings.clear();
    for (int i = 0; i < count; ++i)
      readings.add(grain * std::round((truth + noise(random)) / grain));
    claimed += readings.relative_variance(0.01) / kLevels;
    const double error = std::log(readings.mean() / truth);
    made += error * error / kLevels;
  }
  return {std::sqrt(claimed), std::sqrt(made)};
}

TEST(Readings, CoarseStepsAreLearnedAndNoNumberOfReadingsRemovesThem) {
  for (const int count : {5, 25, 100}) {
    const Errors errors = errors_of(0.05, 0.002, count);
    EXPECT_GT(errors.claimed, 0.9 * errors.made) << count;
    EXPECT_LT(errors.claimed, 2 * errors.made) << count;
  }
}

TEST(Readings, NoiseThatReachesTheNextStepEvensOut) {
  const Errors few = errors_of(0.05, 0.03, 5), many = errors_of(0.05, 0.03, 200);
  EXPECT_LT(many.claimed, 0.3 * few.claimed);
  EXPECT_GT(many.claimed, 0.7 * many.made);
}

// Whole percents are what counters show: nothing is added for them.
TEST(Readings, ExpectedStepsAddNothing) {
  Readings readings;
  for (int i = 0; i < 100; ++i) readings.add(0.4 + 0.01 * (i % 3));
  EXPECT_NEAR(readings.relative_variance(0.01),
              readings.variance(0.01) / (100 * readings.mean() * readings.mean()), 1e-12);
}

}  // namespace
}  // namespace derate
