#include "attrib/samples/sample_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace derate {
namespace {

// Parts of a tick of that many samples, in whole percents as a driver has them.
std::vector<double> parts_of(std::mt19937_64& random, int samples, std::vector<double> shares) {
  std::vector<double> out(shares.size(), 0);
  std::discrete_distribution<std::size_t> whose(shares.begin(), shares.end());
  for (int i = 0; i < samples; ++i) out[whose(random)] += 1.0 / samples;
  for (double& part : out) part = std::round(100 * part) / 100;
  return out;
}

TEST(SampleRate, IsSeenInTheReadings) {
  for (const int samples : {1, 2, 3, 4, 5, 6, 8, 10, 12}) {
    std::mt19937_64 random(7);
    SampleRate rate;
    for (int i = 0; i < 120; ++i) rate.add(parts_of(random, samples, {0.5, 0.3, 0.2}), 1);
    EXPECT_EQ(rate.per_second(), samples);
  }
}

TEST(SampleRate, TicksMayBeLonger) {
  std::mt19937_64 random(7);
  SampleRate rate;
  for (int i = 0; i < 60; ++i) rate.add(parts_of(random, 12, {0.5, 0.5}), 2);
  EXPECT_EQ(rate.per_second(), 6);
}

// One process alone says nothing; nor do turns of many seconds, each tick one process's.
TEST(SampleRate, StaysAsItWasWhereNothingTells) {
  SampleRate alone, turns;
  for (int i = 0; i < 300; ++i) {
    alone.add({1, 0}, 1);
    turns.add(i / 15 % 2 == 0 ? std::vector<double>{1, 0} : std::vector<double>{0, 1}, 1);
  }
  EXPECT_EQ(alone.per_second(), 5);
  EXPECT_EQ(turns.per_second(), 5);
}

// Readings that are no multiples of anything are exact.
TEST(SampleRate, StaysAsItWasWhereReadingsAreNoSamples) {
  std::mt19937_64 random(7);
  SampleRate rate;
  for (int i = 0; i < 300; ++i) {
    const double first = std::uniform_real_distribution<double>(0.1, 0.9)(random);
    rate.add({first, 1 - first}, 1);
  }
  EXPECT_EQ(rate.per_second(), 5);
}

}  // namespace
}  // namespace derate
