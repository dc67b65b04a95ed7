#include "model/curve_priors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "model/power_curve.h"

namespace derate {
namespace {

TEST(CurvePriors, RowsAreSound) {
  std::set<std::string> seen;
  EXPECT_GT(curve_rows().size(), 30u);
  for (const CurveRow& row : curve_rows()) {
    EXPECT_TRUE(seen.insert(std::string(row.chip) + row.name).second) << row.name;
    // Half way down the clocks, work is not faster and not slower than by the clock itself, but for
    // what a quadratic leaves of a measured table; power falls.
    const double x = 0.3, performance = row.performance[0] * x + row.performance[1] * x * x;
    EXPECT_LT(performance, 0.02) << row.name;
    EXPECT_GT(performance, -x - 0.02) << row.name;
    EXPECT_LT(row.power[0] * x + row.power[1] * x * x, -0.1) << row.name;
  }
}

bool same(const CoefficientPrior& a, const CoefficientPrior& b) {
  return a.mean == b.mean && a.covariance == b.covariance;
}

// Every application left out changes what is known, by its name in any letters.
TEST(CurvePriors, LeavesOutWhatIsJudged) {
  for (const CurveRow& row : curve_rows()) {
    const CurvePriors all = curve_priors(row.chip), others = curve_priors(row.chip, row.name);
    EXPECT_FALSE(same(all.performance, others.performance)) << row.name;
    EXPECT_FALSE(same(all.power, others.power)) << row.name;
    EXPECT_TRUE(!row.memory || !same(*all.memory, *others.memory)) << row.name;
  }
  EXPECT_TRUE(same(curve_priors("V100-SXM2", "gemm").performance,
                   curve_priors("V100-SXM2", "GeMM").performance));
  EXPECT_TRUE(same(curve_priors("V100-SXM2", "nobody").power, curve_priors("V100-SXM2").power));
}

TEST(CurvePriors, AChipWithoutRowsTakesAll) {
  EXPECT_TRUE(same(curve_priors("H200").performance, curve_priors("").performance));
  // Of counters those of a table that times kernels alone.
  EXPECT_TRUE(same(*curve_priors("H200").memory, *curve_priors("V100-SXM2").memory));
  EXPECT_TRUE(curve_priors("H200").pipe);
  EXPECT_FALSE(curve_priors("V100-SXM2").pipe);
  EXPECT_FALSE(curve_priors("A100-SXM4").memory_saturated);
}

// What power says of a counter's bias is of a chip with rows enough, of which the counter reads
// alone.
TEST(CurvePriors, PowerTellsOfTheBiasOfItsOwnChip) {
  EXPECT_TRUE(curve_priors("V100-SXM2").memory_power);
  EXPECT_FALSE(curve_priors("A100-SXM4").memory_power);
  EXPECT_FALSE(curve_priors("H200").memory_power);
}

// Whoever is left out: with the covariances beside it, it is one of a joint distribution.
TEST(CurvePriors, CrossCovariancesBelongToAJointDistribution) {
  for (const CurveRow& row : curve_rows()) {
    const CurvePriors priors = curve_priors(row.chip, row.name);
    if (!priors.memory_power) continue;
    const auto& m = priors.memory->covariance;
    const auto& p = priors.power.covariance;
    const auto& c = *priors.memory_power;
    // Of every pair of directions the correlation is at most 1.
    for (double u = 0; u < 3.15; u += 0.05)
      for (double v = 0; v < 3.15; v += 0.05) {
        const double a = std::cos(u), b = std::sin(u), e = std::cos(v), f = std::sin(v);
        const double memory = a * a * m[0] + 2 * a * b * m[1] + b * b * m[2];
        const double power = e * e * p[0] + 2 * e * f * p[1] + f * f * p[2];
        const double both = a * (c[0] * e + c[1] * f) + b * (c[2] * e + c[3] * f);
        EXPECT_LE(both * both, memory * power) << row.name;
      }
  }
}

// On tables that time whole programs a counter that falls behind is no reason to hope.
TEST(CurvePriors, WhatTheHostDoesIsNotCountedOn) {
  const CurvePriors priors = curve_priors("A100-SXM4");
  ASSERT_TRUE(priors.memory);
  EXPECT_EQ(priors.memory->mean, (std::array<double, 2>{0, 0}));
  EXPECT_EQ(priors.pipe->mean, (std::array<double, 2>{0, 0}));
}

// The next application lies within three standard deviations of the others, in every table.
TEST(CurvePriors, TheNextApplicationIsExpected) {
  for (const CurveRow& row : curve_rows()) {
    const CoefficientPrior prior = curve_priors(row.chip, row.name).performance;
    const double x = 0.25;
    const double off =
        x * (row.performance[0] - prior.mean[0]) + x * x * (row.performance[1] - prior.mean[1]);
    const auto& v = prior.covariance;
    const double sd = x * std::sqrt(v[0] + 2 * x * v[1] + x * x * v[2]);
    EXPECT_LT(std::abs(off), 3 * sd) << row.name;
  }
}

TEST(PowerCurve, LearnsHowPowerFalls) {
  PowerCurve curve(curve_priors("V100-SXM2").power);
  EXPECT_GT(curve.power(0).sd, 10);
  const auto truth = [](double x) { return 240 * std::exp(-1.2 * x + 0.5 * x * x); };
  for (const double x : {0.0, 0.2, 0.4}) curve.observe(x, Watts(truth(x)), 1e-4);
  EXPECT_NEAR(curve.relative(0.3).mean, std::log(truth(0.3) / 240), 0.03);
  EXPECT_NEAR(curve.power(0.1).mean, std::log(truth(0.1)), 0.03);
  curve.observe(0.1, Watts(0), 1e-4);  // no reading
  EXPECT_NEAR(curve.power(0.1).mean, std::log(truth(0.1)), 0.03);
}

}  // namespace
}  // namespace derate
