#include "attrib/time_shares.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>
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
AttribTick second_of(std::mt19937_64& random, const std::vector<double>& parts) {
  std::vector<std::optional<double>> readings(parts.size(), 0.0);
  std::discrete_distribution<std::size_t> whose(parts.begin(), parts.end());
  for (int i = 0; i < 5; ++i) *readings[whose(random)] += 0.2;
  return tick_of(readings);
}

std::vector<double> mean_parts(const ShareBelief& belief) {
  std::vector<double> out(belief.tenants.size(), 0);
  for (const ShareGuess& guess : belief.guesses)
    for (std::size_t k = 0; k < out.size(); ++k) out[k] += guess.weight * guess.parts[k];
  return out;
}

TEST(TimeShares, OneAloneIsTakenAsItReads) {
  TimeShares shares;
  for (const double reading : {0.99, 0.4}) {
    const ShareBelief now = shares.look(tick_of({reading}));
    EXPECT_EQ(now.busy, reading);
    EXPECT_EQ(mean_parts(now), std::vector<double>{1});
  }
  EXPECT_TRUE(shares.look(tick_of({0.0})).guesses.empty());
}

TEST(TimeShares, ReadingsThatAreNoWholeSamplesAreTakenAsTheyAre) {
  TimeShares shares;
  for (int i = 0; i < 60; ++i) {
    const ShareBelief now = shares.look(tick_of({0.31, 0.52}));
    if (i < 20) continue;
    EXPECT_EQ(now.guesses.size(), 1u);
    EXPECT_NEAR(mean_parts(now)[0], 0.31 / 0.83, 1e-9);
  }
}

// Whether light and heavy, or four: each tick's parts are far nearer to the truth than its samples.
TEST(TimeShares, SteadyPartsAreSeenThroughWholeSamples) {
  for (const std::vector<double>& parts :
       {std::vector<double>{0.5, 0.5}, {0.09, 0.91}, {0.05, 0.05, 0.05, 0.85}}) {
    std::mt19937_64 random(7);
    TimeShares shares;
    double off = 0, read_off = 0;
    for (int i = 0; i < 300; ++i) {
      const AttribTick tick = second_of(random, parts);
      const std::vector<double> now = mean_parts(shares.look(tick));
      if (i < 60) continue;
      for (std::size_t k = 0; k < parts.size(); ++k) {
        off += std::abs(now[k] - parts[k]);
        read_off += std::abs(tick.tenants[k].sm_utilisation->value() - parts[k]);
      }
    }
    EXPECT_LT(off, 0.3 * read_off) << parts.size() << ' ' << parts[0];
  }
}

TEST(TimeShares, TurnsAreFollowed) {
  std::mt19937_64 random(7);
  TimeShares shares;
  double off = 0;
  for (int i = 0; i < 300; ++i) {
    const double first = i / 15 % 2 == 0 ? 1 : 0;
    const double now = mean_parts(shares.look(second_of(random, {first, 1 - first})))[0];
    if (i >= 60) off += std::abs(now - first);
  }
  EXPECT_LT(off / 240, 0.02);
}

// Samples that meet the same process again and again (an H200, two equal `sort`: 77 % of 20 s,
// where each had half of the time): the parts follow them, and equal turns stay possible.
TEST(TimeShares, ClumpsOfSamplesLeaveEqualTurnsPossible) {
  const double seen[] = {0.8, 0.8, 1, 1,   1,   1,   1,   0.2, 0.6,
                         0.2, 0.4, 1, 0.8, 0.8, 0.8, 0.6, 1,   0.8};
  TimeShares shares;
  ShareBelief now;
  double sum = 0;
  for (const double first : seen) {
    now = shares.look(tick_of({first, 1 - first}));
    sum += mean_parts(now)[0];
  }
  EXPECT_LT(sum / std::size(seen), 0.77);
  EXPECT_GT(now.equal_doubt, 0.05);
  EXPECT_EQ(now.equal_parts, (std::vector<double>{0.5, 0.5}));
}

// A light process next to one that saturates the GPU has not half of the time, whatever the watts
// of a second look like.
TEST(TimeShares, SamplesOfMinutesRefuteEqualTurns) {
  std::mt19937_64 random(7);
  TimeShares shares;
  ShareBelief now;
  double sum = 0;
  for (int i = 0; i < 600; ++i) {
    now = shares.look(second_of(random, {0.9, 0.1}));
    std::vector<double> likelihood(kShareModels, 0);
    likelihood[0] = likelihood[1] = likelihood[2] = 3;
    shares.learn_models(likelihood);
    if (i >= 300) sum += mean_parts(now)[1];
  }
  EXPECT_NEAR(sum / 300, 0.1, 0.03);
  EXPECT_LT(now.equal_doubt, 1e-3);
}

// A process that never had a sample, or none for five minutes, takes no part.
TEST(TimeShares, OnlyThoseWithSamplesTakePart) {
  TimeShares shares;
  EXPECT_EQ(shares.look(tick_of({0.0, 1.0, 0.0})).tenants, std::vector<std::size_t>{1});
  EXPECT_EQ(shares.look(tick_of({0.4, 0.6, 0.0})).tenants, (std::vector<std::size_t>{0, 1}));
  ShareBelief now;
  for (int i = 0; i < 290; ++i) now = shares.look(tick_of({0.0, 1.0, 0.0}));
  EXPECT_EQ(now.tenants.size(), 2u);
  for (int i = 0; i < 20; ++i) now = shares.look(tick_of({0.0, 1.0, 0.0}));
  EXPECT_EQ(now.tenants, std::vector<std::size_t>{1});
}

// Of more than there is room for, those that had samples last: over minutes each has its part.
TEST(TimeShares, ManyProcessesHaveTheirParts) {
  constexpr std::size_t kCount = 200;
  std::mt19937_64 random(7);
  TimeShares shares;
  const std::vector<double> parts(kCount, 1.0 / kCount);
  double first_half = 0, all = 0;
  for (int i = 0; i < 1200; ++i) {
    const ShareBelief now = shares.look(second_of(random, parts));
    ASSERT_LE(now.tenants.size(), TimeShares::kMost);
    const std::vector<double> mean = mean_parts(now);
    for (std::size_t k = 0; k < mean.size(); ++k) {
      all += mean[k];
      if (now.tenants[k] < kCount / 2) first_half += mean[k];
    }
  }
  EXPECT_NEAR(all, 1200, 1e-6);
  EXPECT_NEAR(first_half / all, 0.5, 0.03);
}

// If all have samples in each tick, others are left out in each.
TEST(TimeShares, MoreWithSamplesThanThereIsRoomTakeTurns) {
  constexpr std::size_t kCount = 100;
  TimeShares shares;
  std::vector<double> sums(kCount, 0);
  for (int i = 0; i < 200; ++i) {
    const ShareBelief now = shares.look(tick_of(std::vector<std::optional<double>>(kCount, 0.01)));
    const std::vector<double> mean = mean_parts(now);
    EXPECT_NEAR(std::accumulate(mean.begin(), mean.end(), 0.0), 1, 1e-6);
    for (std::size_t k = 0; k < mean.size(); ++k) sums[now.tenants[k]] += mean[k];
  }
  for (const double sum : sums) EXPECT_NEAR(sum, 2, 0.5);
}

TEST(TimeShares, AnIdleGpuForgetsNobody) {
  TimeShares shares;
  shares.look(tick_of({0.4, 0.6}));
  for (int i = 0; i < 600; ++i) shares.look(tick_of({0.0, 0.0}));
  const ShareBelief now = shares.look(tick_of({0.0, 1.0}));
  EXPECT_EQ(now.tenants.size(), 2u);
  EXPECT_LT(mean_parts(now)[0], 0.1);
}

TEST(TimeShares, WhoHoldsAContextAndDoesNothingHasNoTime) {
  std::mt19937_64 random(7);
  TimeShares shares;
  for (int i = 0; i < 60; ++i) {
    AttribTick tick = second_of(random, {0.5, 0.5});
    tick.tenants.push_back({.key = "parked", .signal = SignalKind::process_utilisation});
    for (const std::size_t one : shares.look(tick).tenants) EXPECT_LT(one, 2u);
  }
}

TEST(TimeShares, InstancesHaveNoTime) {
  AttribTick tick = tick_of({0.5});
  tick.tenants[0].signal = SignalKind::instance_activity;
  EXPECT_TRUE(TimeShares().look(tick).tenants.empty());
}

// What is learned of the power moves the belief to the model that foretold it.
TEST(TimeShares, PowerTellsWhichModelIsRight) {
  std::mt19937_64 random(7);
  TimeShares told, untold;
  ShareBelief now, without;
  for (int i = 0; i < 30; ++i) {
    const AttribTick tick = second_of(random, {0.5, 0.5});
    now = told.look(tick);
    without = untold.look(tick);
    std::vector<double> likelihood(kShareModels, -3);
    likelihood.back() = 0;
    told.learn_models(likelihood);
  }
  EXPECT_LT(without.guesses.back().weight, 0.05);
  EXPECT_GT(now.guesses.back().weight, 0.5);
}

RC_GTEST_PROP(TimeShares, AreSharesWhateverIsRead, ()) {
  TimeShares shares;
  const auto ticks = *rc::gen::inRange(1, 30);
  for (int i = 0; i < ticks; ++i) {
    std::vector<std::optional<double>> readings;
    for (int k = *rc::gen::inRange(0, 5); k > 0; --k)
      readings.push_back(*rc::gen::elementOf(
          std::vector<std::optional<double>>{std::nullopt, 0.0, 0.2, 0.6, 0.33, 1.0, 7.0, -1.0}));
    const ShareBelief now = shares.look(tick_of(readings));
    RC_ASSERT(now.tenants.size() <= readings.size());
    RC_ASSERT((now.busy >= 0 && now.busy <= 1));
    double weights = 0;
    for (const ShareGuess& guess : now.guesses) {
      weights += guess.weight;
      RC_ASSERT(guess.strength > 0);
      for (const double part : guess.parts) RC_ASSERT((part >= 0 && part <= 1));
      RC_ASSERT(std::abs(std::accumulate(guess.parts.begin(), guess.parts.end(), 0.0) - 1) < 1e-9);
    }
    RC_ASSERT((now.guesses.empty() || std::abs(weights - 1) < 1e-9));
    for (const WorkDoubt& doubt : now.doubts) {
      RC_ASSERT((doubt.works > 0 && doubt.works < 1));
      shares.learn_work(doubt.process, *rc::gen::element(-1e9, -1.0, 0.0, 3.0, 1e9));
    }
  }
}

}  // namespace
}  // namespace derate
