#include "lab/tenants/share_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace derate {
namespace {

ShareWorldSpec named(const std::string& name) {
  for (ShareWorldSpec& spec : share_worlds())
    if (spec.name == name) return spec;
  ADD_FAILURE() << name;
  return {};
}

// Each tick's truth, with the base, is what the board draws, where the sensor sees all.
TEST(ShareWorld, TheTruthAddsUpToThePower) {
  for (const char* name :
       {"parked:5", "light:0.1:400", "turns:1.5:2", "wander", "clock:3", "limit:250:three"}) {
    ShareWorldSpec spec = named(name);
    spec.part_time_sensor = false;
    const double base_w = spec.base_w;
    ShareWorld world(std::move(spec), 3);
    for (int i = 0; i < 120; ++i) {
      const AttribTick tick = world.tick();
      double joules = base_w;
      for (const ShareTruth& one : world.truth()) joules += one.joules;
      EXPECT_NEAR(static_cast<double>(*tick.energy_mj) / 1000, joules, 3) << name;
    }
  }
}

// The limit lowers the clock, and the mean power meets it.
TEST(ShareWorld, ThePowerLimitHolds) {
  ShareWorld world(named("limit:250:two"), 3);
  double joules = 0;
  for (int i = 0; i < 120; ++i) {
    const AttribTick tick = world.tick();
    if (i < 60) continue;
    joules += static_cast<double>(*tick.energy_mj) / 1000;
    EXPECT_GT(tick.capped.value(), 0.5);
    EXPECT_LT(tick.sm_clock->value(), 1900);
  }
  EXPECT_NEAR(joules / 60, 250, 10);
}

TEST(ShareWorld, ParkedContextsDrawTheirPartOfTheContext) {
  ShareWorld world(named("parked:5"), 3);
  for (int i = 0; i < 60; ++i) {
    (void)world.tick();
    ASSERT_EQ(world.truth().size(), 6u);
    for (std::size_t k = 1; k < 6; ++k) {
      EXPECT_NEAR(world.truth()[k].joules, 47.0 / 6, 1e-6);
      EXPECT_TRUE(world.truth()[k].rests);
    }
  }
}

// Over minutes each process has the samples of its time.
TEST(ShareWorld, SamplesAreOfTheTime) {
  ShareWorld world(named("light:0.3:250"), 3);
  std::map<std::string, double> read, joules;
  for (int i = 0; i < 900; ++i) {
    for (const TenantTick& tenant : world.tick().tenants)
      read[tenant.key] += tenant.sm_utilisation->value();
    for (const ShareTruth& one : world.truth()) joules[one.key] += one.joules - 47.0 / 2;
  }
  ASSERT_EQ(read.size(), 2u);
  const auto first = [](const std::map<std::string, double>& of) {
    return of.begin()->second / (of.begin()->second + of.rbegin()->second);
  };
  EXPECT_NEAR(first(read), first(joules), 0.02);  // their watts are equal
}

TEST(ShareWorld, TurnsAreOfOneProcess) {
  ShareWorld world(named("turns:7:2"), 3);
  int mixed = 0;
  for (int i = 0; i < 140; ++i) {
    const AttribTick tick = world.tick();
    const auto works = [](const TenantTick& tenant) { return tenant.sm_utilisation->value() > 0; };
    mixed += std::count_if(tick.tenants.begin(), tick.tenants.end(), works) > 1 ? 1 : 0;
  }
  EXPECT_LE(mixed, 20);  // those in which a turn or its last sample ends
}

TEST(ShareWorld, TheSameSeedIsTheSameWorld) {
  ShareWorld one(named("jump"), 5), same(named("jump"), 5), other(named("jump"), 6);
  bool differs = false;
  for (int i = 0; i < 60; ++i) {
    const auto energy = one.tick().energy_mj;
    EXPECT_EQ(energy, same.tick().energy_mj);
    differs = differs || energy != other.tick().energy_mj;
  }
  EXPECT_TRUE(differs);
}

TEST(ShareWorld, AProcessThatComesAgainIsAnother) {
  ShareWorld world(named("visitors"), 3);
  std::set<std::string> keys;
  while (world.now_s() < 400)
    for (const TenantTick& tenant : world.tick().tenants) keys.insert(tenant.key);
  EXPECT_GT(keys.size(), 8u);
}

TEST(ShareWorld, WorldsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ShareWorldSpec& spec : share_worlds()) EXPECT_TRUE(names.insert(spec.name).second);
  EXPECT_GE(names.size(), 60u);
  const auto drawn = drawn_share_worlds(1, 20), again = drawn_share_worlds(1, 20);
  ASSERT_EQ(drawn.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(drawn[i].processes.size(), again[i].processes.size());
    EXPECT_GE(drawn[i].processes.size(), 2u);
  }
}

}  // namespace
}  // namespace derate
