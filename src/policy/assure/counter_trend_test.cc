#include "policy/assure/counter_trend.h"

#include <gtest/gtest.h>

#include <random>

namespace derate {
namespace {

using namespace std::chrono_literals;

// Of readings each 2 s with an error of 0.3 %, while the rate moves by so much a second.
double trend_of(double per_second, std::uint64_t seed, double period = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> error(0, 0.003);
  CounterTrend trend;
  Instant now{};
  for (int i = 0; i < 60; ++i) {
    now += 2s;
    const double t = 2.0 * i;
    const double moved = period > 0 ? per_second * period * std::sin(t / period) : per_second * t;
    trend.add(now, 0.1, 3 + moved + error(random), 0.003 * 0.003);
  }
  return trend.per_second(now);
}

TEST(CounterTrend, OfASteadyRateIsNone) {
  double all = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) all += trend_of(0, seed) / 200;
  EXPECT_LT(all, 5e-5);  // 0.3 % in a minute
}

TEST(CounterTrend, IsSeenEitherWay) {
  for (const double per_second : {0.0008, -0.0008, 0.003})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      EXPECT_GT(trend_of(per_second, seed), 0.5 * std::abs(per_second));
      EXPECT_LT(trend_of(per_second, seed), 1.3 * std::abs(per_second));
    }
}

// A wave comes to a halt at its crests, where what was seen before it still counts.
TEST(CounterTrend, OfAWaveIsRemembered) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_GT(trend_of(0.005, seed, 60 / 6.283), 0.001);
}

TEST(CounterTrend, TwoClocksAreNotCompared) {
  CounterTrend trend;
  Instant now{};
  for (int i = 0; i < 40; ++i) {
    now += 2s;
    trend.add(now, i % 2 == 0 ? 0 : 0.1, i % 2 == 0 ? 3 : 2.9, 1e-6);
  }
  EXPECT_EQ(trend.per_second(now), 0);
}

}  // namespace
}  // namespace derate
