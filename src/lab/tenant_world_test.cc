#include "lab/tenant_world.h"

#include <gtest/gtest.h>

#include <cmath>

namespace derate {
namespace {

std::unique_ptr<TenantWorld> world_of(const char* name, std::uint64_t seed = 1) {
  auto world = TenantWorld::create(**find_tenant_scenario(name), seed, std::chrono::minutes(5));
  EXPECT_TRUE(world.ok());
  return *std::move(world);
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
  const double base = world->chip().idle_power.at(world->chip().unused_clock) * 299;
  EXPECT_GT(own, 0.2 * board);
  EXPECT_NEAR(board - base - own, 0, 0.05 * board);  // what leaks
  EXPECT_NEAR(last_seen - first_seen, board, 0.03 * board);
}

INSTANTIATE_TEST_SUITE_P(All, EveryScenario,
                         testing::Values("A", "B", "C", "D", "E", "F", "H", "I", "J", "K", "L", "M",
                                         "N", "P", "S", "T"),
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

}  // namespace
}  // namespace derate
