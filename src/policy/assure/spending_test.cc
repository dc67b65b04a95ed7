#include "policy/assure/spending.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// Work that follows the clock, and power that follows its square.
Belief slower(double x) { return {-x, 0.01}; }
Belief dearer(double x) { return {x, 0.02}; }

TEST(Spending, WhatIsUnsavedIsTheSameAtTheHighestClock) {
  Spending spending;
  spending.add_unsaved({10s, 2000_J});
  const Saving saving = spending.saving(slower, dearer);
  EXPECT_EQ(saving.energy, saving.energy_at_highest);
  EXPECT_EQ(saving.time, saving.time_at_highest);
  EXPECT_EQ(saving.energy_sd, 0_J);
}

TEST(Spending, ALowClockTakesLongerAndLess) {
  Spending spending;
  spending.add(0.2, {10s, 1000_J});
  const Saving saving = spending.saving(slower, dearer);
  EXPECT_NEAR(saving.energy_at_highest.value(), 1000 * std::exp(0.2), 1e-9);
  EXPECT_NEAR(saving.energy_sd.value(), 1000 * std::exp(0.2) * 0.02, 1e-9);
  EXPECT_NEAR(seconds(saving.time_at_highest), 10 * std::exp(-0.2), 1e-6);
}

// A dry run stays at the highest clock; x is what was asked for.
TEST(Spending, ADryRunWouldSaveWhatIsLikely) {
  Spending spending;
  spending.add(0.2, {10s, 1000_J});
  spending.add(0, {10s, 1000_J});
  const Saving would_be = spending.would_be({0.2, 0.1, 0.3}, {0.06, 0.02, 0.1});
  EXPECT_EQ(would_be.energy_at_highest, 2000_J);
  EXPECT_EQ(would_be.time_at_highest, 20s);
  EXPECT_NEAR(energy_saving(would_be)->low, 0.1, 1e-9);
  EXPECT_NEAR(energy_saving(would_be)->high, 0.3, 1e-9);
  EXPECT_NEAR(performance(would_be)->low, 0.9, 1e-6);
  EXPECT_NEAR(performance(would_be)->high, 0.98, 1e-6);
}

RC_GTEST_PROP(Spending, PartsAddUp, ()) {
  Spending first, second, both;
  const int steps = *rc::gen::inRange(0, 50);
  for (int i = 0; i < steps; ++i) {
    const Spent spent{from_seconds(*rc::gen::inRange(0, 100)), Joules(*rc::gen::inRange(0, 5000))};
    const double x = *rc::gen::inRange(0, 150) / 100.0;
    Spending& part = *rc::gen::arbitrary<bool>() ? first : second;
    if (*rc::gen::arbitrary<bool>()) {
      part.add_unsaved(spent), both.add_unsaved(spent);
    } else {
      part.add(x, spent), both.add(x, spent);
    }
  }
  Saving sum = first.saving(slower, dearer);
  sum += second.saving(slower, dearer);
  first.add(second);
  const double apart = (first.saving(slower, dearer).energy_at_highest -
                        both.saving(slower, dearer).energy_at_highest)
                           .value();
  RC_ASSERT(std::abs(apart) < 1e-6);
  RC_ASSERT(std::abs((sum.energy_sd - both.saving(slower, dearer).energy_sd).value()) < 1e-6);
}

}  // namespace
}  // namespace derate
