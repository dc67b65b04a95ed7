#include "lab/tenants/tenant_world.h"

#include <gtest/gtest.h>

#include <cmath>

namespace derate {
namespace {

std::unique_ptr<TenantWorld> world_of(const char* name, std::uint64_t seed = 1) {
  auto world = TenantWorld::create(**find_tenant_scenario(name), seed, std::chrono::minutes(5));
  EXPECT_TRUE(world.ok());
  return *std::move(world);
}

std::vector<const char*> names_of_scenarios() {
  std::vector<const char*> out;
  for (const TenantScenario& scenario : tenant_scenarios()) out.push_back(scenario.name);
  return out;
}

class EveryScenario : public testing::TestWithParam<const char*> {};

// What the tenants own and the base make the board, in truth; leakage is the base's.
TEST_P(EveryScenario, TruthAddsUpAndTheCounterFollows) {
  auto world = world_of(GetParam());
  double own = 0, first_truth = 0, first_seen = 0, last_seen = 0;
  int ticks = 0;
  for (int i = 0; i < 300; ++i) {
    const auto seen = world->tick();
    if (!seen.ok()) continue;
    for (const TenantTruth& truth : world->truth()) {
      EXPECT_GE(truth.above_base.value(), -1e-9);
      own += ticks > 0 ? truth.above_base.value() : 0;
    }
    last_seen = seen->board.energy.value().value();
    if (ticks++ == 0) first_seen = last_seen, first_truth = world->energy().value();
  }
  const double board = world->energy().value() - first_truth;
  const double base = world->chip().idle_power.at(world->chip().unused_clock) * 299 +
                      (*find_tenant_scenario(GetParam()))->base_step_watts * 150;
  EXPECT_GT(own, 0.2 * board);
  EXPECT_NEAR(board - base - own, 0, 0.05 * board);  // what leaks
  EXPECT_NEAR(last_seen - first_seen, board, 0.03 * board);
}

INSTANTIATE_TEST_SUITE_P(All, EveryScenario, testing::ValuesIn(names_of_scenarios()),
                         [](const auto& one) { return std::string(one.param); });

TEST(TenantWorld, TheSameSeedIsTheSameWorld) {
  auto one = world_of("M", 3), other = world_of("M", 3), third = world_of("M", 4);
  for (int i = 0; i < 60; ++i) {
    const auto a = one->tick(), b = other->tick();
    (void)third->tick();
    ASSERT_EQ(a.ok(), b.ok());
    if (a.ok()) {
      EXPECT_EQ(*a, *b);
    }
  }
  EXPECT_NE(one->energy().value(), third->energy().value());
}

TEST(TenantWorld, TheLimitIsMetWhereThereIsOne) {
  auto world = world_of("F");
  int capped = 0;
  for (int i = 0; i < 300; ++i) {
    const auto seen = world->tick();
    capped += seen.ok() && (*seen->board.throttle_reasons & throttle::kSwPowerCap) != 0 ? 1 : 0;
  }
  EXPECT_GT(capped, 60);
  EXPECT_LT(capped, 300);
}

TEST(TenantWorld, SilentChangesKeepTheProcess) {
  auto world = world_of("H");
  std::string first;
  for (int i = 0; i < 300; ++i) {
    const auto seen = world->tick();
    if (!seen.ok()) continue;
    for (const GpuProcess& process : seen->processes)
      if (process.gpu_instance == 1) {
        if (first.empty()) first = world->key_of_process(process.pid);
        EXPECT_EQ(world->key_of_process(process.pid), first);
      }
  }
  EXPECT_FALSE(first.empty());
}

// Each second's readings are whole samples of 200 ms, and a parked process has none.
TEST(TenantWorld, ProcessesAreCountedBySamples) {
  auto world = world_of("P12");
  int whole = 0, readings = 0;
  for (int i = 0; i < 120; ++i) {
    const auto seen = world->tick();
    ASSERT_TRUE(seen.ok());
    for (const GpuProcess& process : seen->processes) {
      if (!process.sm_utilisation) continue;
      const double samples = 5 * process.sm_utilisation->value();
      if (process.name == "parked") {
        EXPECT_EQ(samples, 0);
      }
      ++readings;
      whole += samples == 0 || samples > 0.15 ? 1 : 0;
    }
  }
  EXPECT_GT(readings, 600);
  EXPECT_GT(whole, 0.8 * readings);
}

TEST(TenantWorld, ProcessesThatTakeTurnsWorkOneAfterTheOther) {
  auto world = world_of("P8");
  int alone = 0, ticks = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(world->tick().ok());
    int working = 0;
    for (const TenantTruth& truth : world->truth()) working += truth.alone.value() > 1 ? 1 : 0;
    if (i > 45) alone += working == 1 ? 1 : 0, ++ticks;
  }
  EXPECT_GT(alone, 0.9 * ticks);
}

TEST(TenantWorld, OneThatHidesShowsItsCountersWhenItIsAlone) {
  auto world = world_of("Q6", 2);
  double hidden = 0, shown = 0, hidden_w = 0, shown_w = 0;
  for (int i = 0; i < 300; ++i) {
    const auto seen = world->tick();
    if (!seen.ok() || seen->instances[0].activity.sm.value_or(Fraction(0)) <= Fraction(0)) continue;
    const bool others = !world->truth()[1].workload.empty();
    (others ? hidden : shown) += seen->instances[0].activity.sm->value();
    (others ? hidden_w : shown_w) += world->truth()[0].alone.value();
  }
  ASSERT_GT(hidden_w, 0);
  ASSERT_GT(shown_w, 0);
  EXPECT_LT(hidden / hidden_w, 0.2 * shown / shown_w);
}

}  // namespace
}  // namespace derate
