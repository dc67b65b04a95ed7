#include "model/progress_curve.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

namespace derate {
namespace {

const CoefficientPrior kCurve{{-0.2, -0.3}, {0.05, 0, 0.03}};
const CoefficientPrior kBias[] = {{{-0.05, 0.1}, {0.002, 0, 0.005}}, {{0, 0}, {0.01, 0, 0.01}}};

// Work drawn from the prior, read at some clocks with noise.
struct World {
  double a, b, c, d, level;
  double performance(double x) const { return a * x + b * x * x; }
  double reading(double x) const { return level + performance(x) + c * x + d * x * x; }
};

World drawn(std::mt19937_64& random) {
  std::normal_distribution<double> n;
  return {-0.2 + std::sqrt(0.05) * n(random), -0.3 + std::sqrt(0.03) * n(random),
          -0.05 + std::sqrt(0.002) * n(random), 0.1 + std::sqrt(0.005) * n(random), 2 * n(random)};
}

// What it says of its error is true of its error: of 2000 worlds, 95 % lie within 1.96 sd.
TEST(ProgressCurve, ItsUncertaintyIsItsError) {
  std::mt19937_64 random(7);
  int inside = 0;
  constexpr int kWorlds = 2000;
  for (int i = 0; i < kWorlds; ++i) {
    const World world = drawn(random);
    ProgressCurve curve(kCurve, kBias);
    std::normal_distribution<double> noise(0, 0.02);
    for (const double x : {0.0, 0.0, 0.1, 0.1, 0.25})
      curve.observe(0, x, world.reading(x) + noise(random), 4e-4);
    const Belief belief = curve.performance(0.3);
    inside += std::abs(belief.mean - world.performance(0.3)) < 1.96 * belief.sd ? 1 : 0;
  }
  EXPECT_NEAR(inside / double(kWorlds), 0.95, 0.015);
}

RC_GTEST_PROP(ProgressCurveProperty, ReadingsOnlyMakeItSurer, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> any(0, 0.5);
  const World world = drawn(random);
  ProgressCurve curve(kCurve, kBias);
  for (int i = 0; i < 40; ++i) {
    const double at = any(random), before = curve.performance(at).sd;
    const double x = any(random);
    curve.observe(i % 2, x, world.reading(x), 1e-4 + any(random));
    RC_ASSERT(curve.performance(at).sd <= before + 1e-12);
    RC_ASSERT(curve.sd_with_level(0, at) <= curve.performance(at).sd + 1e-12);
    RC_ASSERT(curve.performance(0).mean == 0.0);
    RC_ASSERT(curve.performance(0).sd == 0.0);
  }
}

// A month of exact readings at a few clocks leaves it a covariance, and its mean near the truth.
TEST(ProgressCurve, StaysACovarianceForAMonth) {
  std::mt19937_64 random(3);
  const World world = drawn(random);
  ProgressCurve curve(kCurve, kBias);
  std::uniform_int_distribution<int> any(0, 4);
  for (int i = 0; i < 2'000'000; ++i) {
    const double x = 0.1 * any(random);
    curve.observe(static_cast<std::size_t>(i % 2), x, world.reading(x), 1e-12);
  }
  for (const double x : {0.1, 0.25, 0.4}) {
    const Belief belief = curve.performance(x);
    EXPECT_GE(belief.sd, 0);
    EXPECT_LT(belief.sd, 0.1);
    EXPECT_NEAR(belief.mean, world.performance(x), 5 * belief.sd + 0.02);
  }
}

// One level alone says nothing of the curve; a second clock does.
TEST(ProgressCurve, LearnsFromRatiosOnly) {
  ProgressCurve curve(kCurve, kBias);
  const Belief before = curve.performance(0.2);
  EXPECT_GT(curve.level_sd(0), 10);
  for (int i = 0; i < 100; ++i) curve.observe(0, 0, -1.5, 1e-4);
  EXPECT_NEAR(curve.performance(0.2).mean, before.mean, 1e-6);
  EXPECT_NEAR(curve.performance(0.2).sd, before.sd, 1e-6);
  EXPECT_NEAR(curve.level_sd(0), 1e-3, 1e-4);
  for (int i = 0; i < 100; ++i) curve.observe(0, 0.2, -1.5, 1e-4);
  EXPECT_LT(curve.performance(0.2).sd, before.sd / 2);
  EXPECT_NEAR(curve.performance(0.2).mean, 0, 0.03);
}

// What one counter tells of another's bias, where the two go together.
TEST(ProgressCurve, ARelatedCounterTellsOfTheBias) {
  ProgressCurve apart(kCurve, kBias), related = apart;
  related.relate(0, 1, {0.9 * std::sqrt(0.002 * 0.01), 0, 0, 0.9 * std::sqrt(0.005 * 0.01)});
  for (ProgressCurve* curve : {&apart, &related})
    for (const double x : {0.0, 0.3}) {
      curve->observe(0, x, -0.1 * x, 1e-6);
      curve->observe(1, x, -0.1 * x + 0.3 * x, 1e-6);
    }
  // Counter 1 shows too much: so does counter 0, where it goes with it.
  EXPECT_LT(related.performance(0.3).mean, apart.performance(0.3).mean - 0.01);
  EXPECT_LT(related.performance(0.3).sd, apart.performance(0.3).sd);
}

TEST(ProgressCurve, ALevelThatMayHaveMovedTellsLessOfTheCurve) {
  ProgressCurve steady(kCurve, kBias), moved = steady;
  for (ProgressCurve* curve : {&steady, &moved}) curve->observe(0, 0, -1, 1e-6);
  moved.drift(0, 0.02 * 0.02);
  for (ProgressCurve* curve : {&steady, &moved}) curve->observe(0, 0.2, -1.1, 1e-6);
  EXPECT_GT(moved.performance(0.2).sd, steady.performance(0.2).sd);
}

// With a trend its uncertainty is its error, too: of 2000 worlds, 95 % lie within 1.96 sd.
TEST(ProgressCurve, ALevelWithATrendIsToldFromTheCurve) {
  std::mt19937_64 random(8);
  std::normal_distribution<double> noise(0, 0.01), trends(0, 0.002);
  int inside = 0, trend_inside = 0;
  constexpr int kWorlds = 2000;
  for (int i = 0; i < kWorlds; ++i) {
    const World world = drawn(random);
    const double trend = trends(random);
    ProgressCurve curve(kCurve, kBias);
    curve.add_trend(0, 0.002);
    double moved = 0;
    for (const double x : {0.0, 0.0, 0.1, 0.1, 0.25, 0.1, 0.1, 0.0}) {
      curve.pass({.seconds = 3});
      moved += 3 * trend;
      curve.observe(0, x, world.reading(x) + moved + noise(random), 1e-4);
    }
    const Belief belief = curve.performance(0.3);
    inside += std::abs(belief.mean - world.performance(0.3)) < 1.96 * belief.sd ? 1 : 0;
    trend_inside += std::abs(curve.trend().mean - trend) < 1.96 * curve.trend().sd ? 1 : 0;
  }
  EXPECT_NEAR(inside, 0.95 * kWorlds, 0.02 * kWorlds);
  EXPECT_NEAR(trend_inside, 0.95 * kWorlds, 0.02 * kWorlds);
}

}  // namespace
}  // namespace derate
