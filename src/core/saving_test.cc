#include "core/saving.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

Saving a_saving() {
  const auto some = [](int most) { return static_cast<double>(*rc::gen::inRange(1, most)); };
  return {.energy = Joules(some(10'000)),
          .energy_at_highest = Joules(some(10'000)),
          .energy_sd = Joules(some(1000)),
          .time = from_seconds(some(1000)),
          .time_at_highest = from_seconds(some(1000)),
          .time_sd = from_seconds(some(100))};
}

TEST(Saving, IsAShareOfTheEnergyAtTheHighestClock) {
  const Saving saving{.energy = 740_J,
                      .energy_at_highest = 870_J,
                      .energy_sd = 10_J,
                      .time = 100s,
                      .time_at_highest = 93s,
                      .time_sd = 1s};
  const auto energy = energy_saving(saving);
  ASSERT_TRUE(energy);
  EXPECT_NEAR(energy->mean, 130.0 / 870, 1e-12);
  EXPECT_NEAR(energy->low, 1 - 740 / (870 - 16.45), 1e-12);
  EXPECT_NEAR(energy->high, 1 - 740 / (870 + 16.45), 1e-12);
  const auto speed = performance(saving);
  ASSERT_TRUE(speed);
  EXPECT_NEAR(speed->mean, 0.93, 1e-12);
  EXPECT_NEAR(speed->low, 0.93 - 0.01645, 1e-12);
}

TEST(Saving, OfNothingIsNotKnown) {
  EXPECT_FALSE(energy_saving({}));
  EXPECT_FALSE(performance({}));
}

RC_GTEST_PROP(Saving, TheEstimateLiesInItsInterval, ()) {
  const Saving saving = a_saving();
  for (const auto& share : {energy_saving(saving), performance(saving)}) {
    RC_ASSERT(share.has_value());
    RC_ASSERT(share->low <= share->mean);
    RC_ASSERT(share->mean <= share->high);
    RC_ASSERT(share->high <= 1.0);
  }
}

RC_GTEST_PROP(Saving, WhatIsAddedCanBeTakenAway, ()) {
  const Saving one = a_saving();
  Saving both = one;
  const Saving other = a_saving();
  both += other;
  both -= other;
  RC_ASSERT(std::abs((both.energy - one.energy).value()) < 1e-6);
  RC_ASSERT(both.time == one.time);
}

RC_GTEST_PROP(Saving, WholeMillijoulesAreAsNearAsCanBe, ()) {
  const Saving saving = a_saving();
  const Saving whole = saving_of(saving_sums(saving));
  RC_ASSERT(std::abs((whole.energy - saving.energy).value()) <= 0.0005);
  RC_ASSERT(std::abs((whole.energy_at_highest - saving.energy_at_highest).value()) <= 0.0005);
  RC_ASSERT(std::abs((whole.energy_sd - saving.energy_sd).value()) <= 0.0005);
  RC_ASSERT(saving_sums(whole) == saving_sums(saving));
}

TEST(Saving, InJoulesIsTheShareOfWhatTheHighestClockTakes) {
  const Saving saving{
      .energy = Joules(800), .energy_at_highest = Joules(1000), .energy_sd = Joules(20)};
  const auto joules = energy_saved(saving);
  const auto share = energy_saving(saving);
  ASSERT_TRUE(joules && share);
  EXPECT_DOUBLE_EQ(joules->mean.value(), 200);
  EXPECT_DOUBLE_EQ(joules->low.value(), 200 - 1.645 * 20);
  EXPECT_DOUBLE_EQ(joules->high.value(), 200 + 1.645 * 20);
  EXPECT_DOUBLE_EQ(share->low, joules->low.value() / (800 + joules->low.value()));
  EXPECT_FALSE(energy_saved({}));
}

// Energy that nobody governed has saved nothing.
TEST(Saving, TheShareIsOfAllThatWasUsed) {
  const Saving saving{
      .energy = Joules(800), .energy_at_highest = Joules(1000), .energy_sd = Joules(20)};
  const auto all = saved_share(Joules(1800), saving);
  ASSERT_TRUE(all);
  EXPECT_DOUBLE_EQ(all->mean, 0.1);
  EXPECT_LT(all->low, 0.1);
  EXPECT_GT(all->high, 0.1);
  const auto governed = saved_share(Joules(800), saving);
  ASSERT_TRUE(governed);
  EXPECT_DOUBLE_EQ(governed->mean, energy_saving(saving)->mean);
  EXPECT_DOUBLE_EQ(governed->low, energy_saving(saving)->low);
  // A counter that is behind the estimate makes no share greater.
  EXPECT_DOUBLE_EQ(saved_share(Joules(700), saving)->mean, governed->mean);
  EXPECT_FALSE(saved_share(Joules(700), {}));
}

}  // namespace
}  // namespace derate
