#include "policy/slo/step_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace derate {
namespace {

// An engine whose steps follow the clock by the power n and grow with the batch.
double truth(double x, double running, double n) {
  return 0.024 * std::exp(n * x + 0.02 * running);
}

TEST(StepTimes, LearnsHowStepsFollowClockAndBatch) {
  for (const double n : {0.2, 0.6, 1.0}) {
    StepTimes times;
    EXPECT_FALSE(times.expected(0, 1));
    std::mt19937_64 random(5);
    std::normal_distribution<double> noise(0, 0.02);
    for (int i = 0; i < 300; ++i) {
      const double x = 0.1 * (i % 4), running = 1 + i % 7;
      times.observe(x, running, truth(x, running, n) * std::exp(noise(random)), 40);
    }
    for (const double x : {0.0, 0.15, 0.35}) {
      EXPECT_NEAR(*times.expected(x, 5) / truth(x, 5, n), 1, 0.03) << n << " " << x;
      EXPECT_GT(*times.slowest(x, 5), truth(x, 5, n));
    }
  }
}

// After one look at the highest clock little is sure, and a lower clock may be as slow as it is
// low.
TEST(StepTimes, WhatWasNotSeenIsWide) {
  StepTimes times;
  times.observe(0, 2, 0.03, 100);
  EXPECT_NEAR(*times.expected(0, 2), 0.03, 0.002);
  EXPECT_GT(*times.slowest(0.3, 2), 0.03 * std::exp(0.3 * 1.2));
}

TEST(StepTimes, NothingIsLearnedOfNothing) {
  StepTimes times;
  times.observe(0, 2, 0, 100);
  times.observe(0, 2, 0.03, 0);
  EXPECT_FALSE(times.slowest(0, 2));
}

}  // namespace
}  // namespace derate
