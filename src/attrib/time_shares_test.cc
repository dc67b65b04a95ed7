#include "attrib/time_shares.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>

namespace derate {
namespace {

AttribTick tick_of(const std::vector<std::optional<double>>& readings) {
  AttribTick tick{.length = std::chrono::seconds(1)};
  for (std::size_t i = 0; i < readings.size(); ++i) {
    TenantTick tenant{.key = std::to_string(i), .signal = SignalKind::process_utilisation};
    if (readings[i]) tenant.sm_utilisation = Fraction(*readings[i]);
    tick.tenants.push_back(tenant);
  }
  return tick;
}

// A second as an H200's driver tells it: each of five samples is one process's.
AttribTick second_of(std::mt19937_64& random, double first) {
  int own = 0;
  for (int i = 0; i < 5; ++i) own += std::uniform_real_distribution<double>(0, 1)(random) < first;
  return tick_of({own / 5.0, 1 - own / 5.0});
}

TEST(TimeShares, OneAloneIsTakenAsItReads) {
  TimeShares shares;
  for (const double reading : {0.99, 0.4, 0.0}) {
    const auto now = shares.step(tick_of({reading}));
    EXPECT_EQ(now[0]->share, reading);
    EXPECT_EQ(now[0]->sd, 0);
  }
}

TEST(TimeShares, ReadingsThatAreNoWholeSamplesAreTakenAsTheyAre) {
  TimeShares shares;
  for (int i = 0; i < 20; ++i) {
    const auto now = shares.step(tick_of({0.31, 0.52}));
    EXPECT_EQ(now[0]->share, 0.31);
    EXPECT_EQ(now[1]->share, 0.52);
  }
}

TEST(TimeShares, EqualTurnsAreSeenThroughWholeSamples) {
  std::mt19937_64 random(7);
  TimeShares shares;
  for (int i = 0; i < 60; ++i) {
    const auto now = shares.step(second_of(random, 0.5));
    if (i < 5) continue;
    EXPECT_NEAR(now[0]->share / (now[0]->share + now[1]->share), 0.5, 0.08);
    EXPECT_GT(now[0]->sd, 0);
  }
}

// Slowly: a minute of samples stands against what is believed of turns.
TEST(TimeShares, UnequalTurnsAreBelievedInTime) {
  std::mt19937_64 random(7);
  TimeShares shares;
  double first = 0, last = 0;
  for (int i = 0; i < 180; ++i) {
    const auto now = shares.step(second_of(random, 0.9));
    if (i == 3) first = now[0]->share / (now[0]->share + now[1]->share);
    last = now[0]->share / (now[0]->share + now[1]->share);
  }
  EXPECT_LT(first, 0.65);
  EXPECT_GT(last, 0.68);
}

TEST(TimeShares, WhoHoldsAContextAndDoesNothingHasNoTime) {
  std::mt19937_64 random(7);
  TimeShares shares;
  for (int i = 0; i < 30; ++i) {
    AttribTick tick = second_of(random, 0.5);
    tick.tenants.push_back({.key = "parked", .signal = SignalKind::process_utilisation});
    EXPECT_EQ(shares.step(tick)[2]->share, 0);
  }
}

TEST(TimeShares, OtherSignalsHaveNoTime) {
  TimeShares shares;
  AttribTick tick = tick_of({0.5});
  tick.tenants[0].signal = SignalKind::instance_activity;
  EXPECT_FALSE(shares.step(tick)[0]);
}

RC_GTEST_PROP(TimeShares, AreSharesWhateverIsRead, ()) {
  TimeShares shares;
  const auto ticks = *rc::gen::inRange(1, 30);
  for (int i = 0; i < ticks; ++i) {
    std::vector<std::optional<double>> readings;
    for (int k = *rc::gen::inRange(0, 5); k > 0; --k)
      readings.push_back(*rc::gen::elementOf(
          std::vector<std::optional<double>>{std::nullopt, 0.0, 0.2, 0.6, 0.33, 1.0, 7.0, -1.0}));
    const auto now = shares.step(tick_of(readings));
    RC_ASSERT(now.size() == readings.size());
    for (const auto& one : now)
      RC_ASSERT((one && one->share >= 0 && one->share <= 1 && one->sd >= 0 && one->sd <= 1));
  }
}

}  // namespace
}  // namespace derate
