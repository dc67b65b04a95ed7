#include "attrib/innovations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace derate {
namespace {

TEST(SensorNoise, IsFoundInWhatChangesFromTickToTick) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> gauss(0, 1);
  SensorNoise noise;
  for (int i = 0; i < 2000; ++i)
    noise.learn(20 * gauss(random), noise.counted_variance(400), 400, 1, true);
  // Of a change and what is off the smaller one counts: a low estimate.
  EXPECT_NEAR(std::sqrt(noise.variance(400)), 16, 3);
}

TEST(SensorNoise, WhatStaysOffIsNoNoise) {
  SensorNoise noise;
  const double before = noise.variance(400);
  for (int i = 0; i < 500; ++i) noise.learn(30, noise.counted_variance(400), 400, 1, true);
  EXPECT_LT(noise.variance(400), before);
}

TEST(SensorNoise, LearnsNothingOfTicksThatTellNothing) {
  SensorNoise noise;
  const double before = noise.variance(400);
  for (int i = 0; i < 100; ++i) noise.learn(i % 2 == 0 ? 50 : -50, 100, 400, 1, false);
  for (int i = 0; i < 100; ++i) noise.learn(i % 2 == 0 ? 50 : -50, 100, 5, 1, true);
  EXPECT_EQ(noise.variance(400), before);
}

// The errors of an AR(1) process with coefficient r: the variance of their mean is that of
// independent ones times (1 + r) / (1 - r).
TEST(Whiteness, FindsTheAutocorrelation) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> gauss(0, 1);
  for (const double r : {0.0, 0.5, 0.8}) {
    Whiteness white;
    double last = 0, sum = 0;
    constexpr int kTicks = 4000;
    for (int i = 0; i < kTicks; ++i) {
      last = r * last + std::sqrt(1 - r * r) * gauss(random);
      white.add(last, 1);
      if (i >= 200) sum += white.inflation() / (kTicks - 200);
    }
    const double truth = (1 + r) / (1 - r);
    EXPECT_GT(sum, 0.75 * truth) << r;
    EXPECT_LT(sum, 1.35 * truth) << r;
  }
}

TEST(Unexplained, IsTheMeanDistanceOfWhatWasDrawn) {
  Unexplained unexplained;
  for (int i = 0; i < 59; ++i) unexplained.add(i % 2 == 0 ? 30 : -30, 300, 1);
  EXPECT_FALSE(unexplained.share());
  for (int i = 0; i < 600; ++i) unexplained.add(i % 2 == 0 ? 30 : -30, 300, 1);
  EXPECT_NEAR(unexplained.share()->value(), 0.1, 1e-9);
  for (int i = 0; i < 3000; ++i) unexplained.add(1000, 300, 1);
  EXPECT_EQ(*unexplained.share(), Fraction(1));
}

TEST(Streak, IsOfSeveralOnOneSide) {
  Streak streak;
  EXPECT_FALSE(streak.add(3));
  EXPECT_FALSE(streak.add(3));
  EXPECT_FALSE(streak.add(-3));
  EXPECT_FALSE(streak.add(-3));
  EXPECT_TRUE(streak.add(-3));
  EXPECT_FALSE(streak.add(-3));  // begins anew
  EXPECT_FALSE(streak.add(1));
  EXPECT_FALSE(streak.add(-3));
}

}  // namespace
}  // namespace derate
