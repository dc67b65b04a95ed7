#include "policy/slo/violation_bound.h"

#include <gtest/gtest.h>

#include "policy/slo/test_hours.h"

namespace derate {
namespace {

// At 99 % at most one hour in a hundred, with 3 standard errors.
TEST(ViolationBound, HoldsAtEveryMomentOfAnHourWithCorrelatedSteps) {
  EXPECT_LE(hours_passed({.hours = 400, .seed = 11}), 10);
}

// The figure of docs/policies/slo.md.
TEST(ViolationBoundHours, TenThousand) {
  EXPECT_EQ(hours_passed({.hours = 10'000, .seed = 99}), 0);
}

// The check can fail: a bound of steps of one token does not hold for steps of sixteen.
TEST(ViolationBound, TheCheckSeesABoundThatDoesNotHold) {
  int passed = 0;
  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) {
    ViolationBound bound(1, 0.9);  // for steps of one token, used for steps of sixteen
    double expected = 0;
    for (int step = 0; step < 20'000; ++step) {
      const bool late = std::bernoulli_distribution(0.01)(random);
      expected += 16 * 0.01;
      bound.add(16, late ? 16 : 0);
      if (expected / bound.tokens() > *bound.at_most()) {
        ++passed;
        break;
      }
    }
  }
  EXPECT_GE(passed, 10);
}

TEST(ViolationBound, NothingIsKnownAtFirst) {
  ViolationBound bound(16, 0.01);
  EXPECT_FALSE(bound.at_most());
  bound.add(10, 0);
  EXPECT_EQ(*bound.at_most(), 1);
  EXPECT_EQ(*bound.share(), 0);
}

// With more of the same the bound closes in on the share, from above.
TEST(ViolationBound, ClosesIn) {
  ViolationBound bound(16, 0.01);
  double before = 1;
  for (int i = 0; i < 40; ++i) {
    bound.add(50'000, 250);
    EXPECT_GT(*bound.at_most(), 0.005);
    EXPECT_LT(*bound.at_most(), before);
    before = *bound.at_most();
  }
  EXPECT_LT(before, 0.006);
}

// Steps with more tokens say less: all have one time.
TEST(ViolationBound, LargerStepsSayLess) {
  ViolationBound small(4, 0.01), large(64, 0.01);
  small.add(100'000, 500);
  large.add(100'000, 500);
  EXPECT_LT(*small.at_most(), *large.at_most());
}

}  // namespace
}  // namespace derate
