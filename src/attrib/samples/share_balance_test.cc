#include "attrib/samples/share_balance.h"

#include <gtest/gtest.h>

#include <random>

namespace derate {
namespace {

// The part of five samples that a process with this part of the time has.
double part_of_samples(std::mt19937_64& random, double part) {
  return std::binomial_distribution<int>(5, part)(random) / 5.0;
}

TEST(ShareBalance, ChanceIsNoSurprise) {
  double sum = 0;
  for (int run = 0; run < 40; ++run) {
    std::mt19937_64 random(static_cast<std::uint64_t>(run));
    ShareBalance balance;
    for (int i = 0; i < 600; ++i) balance.add(0.3 - part_of_samples(random, 0.3), 1);
    sum += balance.surprise();
  }
  EXPECT_LT(sum / 40, 2);  // the mean of a squared standard deviation is 1
}

// A light process that was given half of the time for five minutes.
TEST(ShareBalance, WhatIsGivenWronglyForMinutesIsOne) {
  std::mt19937_64 random(7);
  ShareBalance balance;
  for (int i = 0; i < 300; ++i) balance.add(0.5 - part_of_samples(random, 0.1), 1);
  EXPECT_GT(balance.surprise(), 100);
}

// Samples that keep step with turns have one process for 20 s, then the other: in the mean half.
TEST(ShareBalance, LongRunsSayLittle) {
  ShareBalance runs, chance;
  std::mt19937_64 random(7);
  for (int i = 0; i < 70; ++i) {
    runs.add(i / 35 == 0 ? -0.5 : 0.2, 1);
    chance.add(0.5 - part_of_samples(random, 0.65), 1);
  }
  EXPECT_LT(runs.surprise(), 2);
  EXPECT_GT(chance.surprise(), 3 * runs.surprise());
}

TEST(ShareBalance, NothingSeenIsNoSurprise) {
  ShareBalance balance;
  EXPECT_EQ(balance.surprise(), 0);
  balance.add(1, 1);
  EXPECT_EQ(balance.surprise(), 0);
}

}  // namespace
}  // namespace derate
