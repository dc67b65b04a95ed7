#include "compare/mean_interval.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace derate {
namespace {

// The Bayes factor by its integral over the prior of the effect and that of the spread, for the
// formula in mean_interval.cc, of which it shares nothing: the density of the values' signs and
// ratios to the first is the integral over the spread s and the effect d of
// N(values; s d, s^2) / s, with d = 0 below.
double factor_by_integral(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  // Over log s, by steps; for each the effect's integral is Gauss' over its prior's range.
  double with = 0, without = 0;
  constexpr double kStep = 0.01;
  for (double log_s = -8; log_s < 8; log_s += kStep) {
    const double s = std::exp(log_s);
    const auto density = [&](double d) {
      const double exponent = (squares - 2 * s * d * sum + n * s * s * d * d) / (2 * s * s);
      return std::exp(-exponent - n * log_s);
    };
    without += density(0) * kStep;
    double inner = 0;
    for (double d = -10; d < 10; d += 0.01)
      inner += density(d) * std::exp(-d * d / (2 * kPriorVariance)) * 0.01;
    with += inner / std::sqrt(2 * M_PI * kPriorVariance) * kStep;
  }
  return with / without;
}

// At the ends of the interval the Bayes factor against them is one over the error.
TEST(MeanInterval, ItsEndsAreWhereTheBayesFactorIs) {
  for (const double confidence : {0.8, 0.9, 0.95}) {
    const std::vector<double> values{0.31, -0.12, 0.22, 0.55, 0.18, -0.05};
    const auto interval = mean_interval(values, confidence);
    ASSERT_TRUE(interval);
    EXPECT_NEAR(interval->mean, 1.09 / 6, 1e-12);
    for (const double end : {interval->least(), interval->most()}) {
      std::vector<double> moved = values;
      for (double& value : moved) value -= end;
      EXPECT_NEAR(factor_by_integral(moved) * (1 - confidence), 1, 0.01) << confidence;
    }
  }
}

TEST(MeanInterval, NeedsSomeValues) {
  EXPECT_FALSE(mean_interval({}, 0.9));
  const std::vector<double> all{1, 2, 3, 4, 5};
  for (std::size_t n = 1; n < 4; ++n)
    EXPECT_FALSE(mean_interval(std::span(all).first(n), 0.9)) << n;
  EXPECT_TRUE(mean_interval(std::span(all).first(4), 0.9));
}

RC_GTEST_PROP(MeanIntervalProp, MovesAndStretchesWithTheValues, ()) {
  const auto raw = *rc::gen::container<std::vector<int>>(20, rc::gen::inRange(-1000, 1000));
  const double shift = *rc::gen::inRange(-50, 50), factor = *rc::gen::inRange(1, 50);
  std::vector<double> values(raw.begin(), raw.end()), moved;
  for (const double value : values) moved.push_back(shift + factor * value);
  const auto one = *mean_interval(values, 0.9), other = *mean_interval(moved, 0.9);
  RC_ASSERT(std::abs(other.mean - shift - factor * one.mean) < 1e-6 * (1 + std::abs(other.mean)));
  RC_ASSERT(std::abs(other.half_width - factor * one.half_width) < 1e-6 * (1 + other.half_width));
  RC_ASSERT(mean_interval(values, 0.95)->half_width >= one.half_width);
}

// Of 2,000 sequences the interval misses the mean at some number of values up to 60 in no more than
// the stated share, with three standard errors of 2,000.
TEST(MeanInterval, HoldsTheMeanAtEveryNumberOfValues) {
  constexpr int kSequences = 2000;
  std::mt19937_64 random(45);
  std::normal_distribution<double> normal;
  int missed = 0;
  for (int i = 0; i < kSequences; ++i) {
    std::vector<double> values;
    bool held = true;
    while (values.size() < 60 && held) {
      values.push_back(3 + 0.5 * normal(random));
      const auto interval = mean_interval(values, 0.9);
      held = !interval || (interval->least() <= 3 && 3 <= interval->most());
    }
    missed += held ? 0 : 1;
  }
  EXPECT_LE(missed, kSequences * (0.1 + 3 * std::sqrt(0.1 * 0.9 / kSequences)));
  EXPECT_GE(missed, kSequences / 100);  // else it would be wider than it has to be
  RecordProperty("missed", missed);
}

}  // namespace
}  // namespace derate
