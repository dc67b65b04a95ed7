#include "attrib/allocate_energy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <numeric>

namespace derate {
namespace {

AttribTick any_tick(std::size_t tenants, std::int64_t energy_mj) {
  AttribTick tick{.length = std::chrono::milliseconds(*rc::gen::inRange(1, 5000)),
                  .energy_mj = energy_mj};
  for (std::size_t i = 0; i < tenants; ++i)
    tick.tenants.push_back({.key = std::to_string(i),
                            .share = Fraction(*rc::gen::inRange(0, 8) / 7.0),
                            .context = *rc::gen::arbitrary<bool>()});
  return tick;
}

PowerEstimate any_estimate(std::size_t tenants) {
  const auto watts = [] {
    const auto bad = {-1.0, 0.0, std::numeric_limits<double>::quiet_NaN(), 1e300,
                      std::numeric_limits<double>::infinity()};
    return *rc::gen::weightedOneOf<double>({{6, rc::gen::cast<double>(rc::gen::inRange(0, 900))},
                                            {1, rc::gen::elementOf(std::vector<double>(bad))}});
  };
  PowerEstimate out{.base = Watts(watts()), .context = Watts(watts())};
  for (std::size_t i = 0; i < tenants; ++i) out.tenants.push_back({.dynamic = Watts(watts())});
  out.residual_to_base = Fraction(*rc::gen::elementOf(std::vector<double>{0, 0.4, 1, 7, -1}));
  return out;
}

RC_GTEST_PROP(SettleProperty, AddsUpToTheMillijouleAndNothingIsNegative, ()) {
  const auto tenants = *rc::gen::inRange<std::size_t>(0, 9);
  const auto energy =
      *rc::gen::weightedOneOf<std::int64_t>({{4, rc::gen::inRange<std::int64_t>(0, 1'000'000)},
                                             {1, rc::gen::inRange<std::int64_t>(0, 3)},
                                             {1, rc::gen::just<std::int64_t>(9'000'000'000'000)}});
  const AttribTick tick = any_tick(tenants, energy);
  for (const IdleRule rule : {IdleRule::unallocated, IdleRule::by_slice, IdleRule::equal}) {
    const auto split = allocate_energy(tick, any_estimate(tenants), rule);
    RC_ASSERT(split.has_value());
    std::int64_t all = split->unallocated_mj;
    RC_ASSERT(split->unallocated_mj >= 0);
    for (const TenantEnergy& tenant : split->tenants) {
      RC_ASSERT((tenant.base_mj >= 0 && tenant.context_mj >= 0 && tenant.dynamic_mj >= 0));
      all += tenant.total_mj();
    }
    RC_ASSERT(all == energy);
  }
}

TEST(Settle, ResidualGoesInProportionToTheDynamicPower) {
  AttribTick tick{.length = std::chrono::seconds(1), .energy_mj = 400'000};
  tick.tenants = {{.key = "a"}, {.key = "b"}, {.key = "parked"}};
  PowerEstimate estimate{.base = Watts(80), .context = Watts(60)};
  estimate.tenants = {{.dynamic = Watts(50)}, {.dynamic = Watts(150)}, {.dynamic = Watts(0)}};
  const auto split = allocate_energy(tick, estimate, IdleRule::unallocated);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->unallocated_mj, 80'000);
  EXPECT_EQ(split->tenants[0].dynamic_mj, 65'000);
  EXPECT_EQ(split->tenants[1].dynamic_mj, 195'000);
  EXPECT_EQ(split->tenants[2].total_mj(), 20'000);  // a third of the context step, nothing more
}

TEST(Settle, WhatIsNoiseIsTheBases) {
  AttribTick tick{.length = std::chrono::seconds(1), .energy_mj = 300'000};
  tick.tenants = {{.key = "a"}, {.key = "b"}};
  PowerEstimate estimate{.base = Watts(80), .context = Watts(40), .residual_to_base = Fraction(1)};
  estimate.tenants = {{.dynamic = Watts(50)}, {.dynamic = Watts(100)}};
  auto split = allocate_energy(tick, estimate, IdleRule::unallocated);
  EXPECT_EQ(split->unallocated_mj, 110'000);
  EXPECT_EQ(split->tenants[1].dynamic_mj, 100'000);
  // A base cannot bear more than it has.
  tick.energy_mj = 160'000;
  split = allocate_energy(tick, estimate, IdleRule::unallocated);
  EXPECT_EQ(split->unallocated_mj, 0);
  EXPECT_EQ(split->tenants[1].dynamic_mj, 80'000);
}

TEST(Settle, NobodyThereLeavesAllUnallocated) {
  const AttribTick tick{.length = std::chrono::seconds(1), .energy_mj = 123'457};
  const auto split =
      allocate_energy(tick, {.base = Watts(80), .context = Watts(47)}, IdleRule::equal);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->unallocated_mj, 123'457);
}

TEST(Settle, SlicesInNoInstanceStayUnallocated) {
  AttribTick tick{.length = std::chrono::seconds(1), .energy_mj = 70'000};
  tick.tenants = {{.key = "a", .share = Fraction(2 / 7.0)},
                  {.key = "b", .share = Fraction(1 / 7.0)}};
  const PowerEstimate estimate{.base = Watts(70), .tenants = {{}, {}}};
  const auto split = allocate_energy(tick, estimate, IdleRule::by_slice);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->tenants[0].base_mj, 20'000);
  EXPECT_EQ(split->tenants[1].base_mj, 10'000);
  EXPECT_EQ(split->unallocated_mj, 40'000);
}

TEST(Settle, NoEnergyNoSplit) { EXPECT_FALSE(allocate_energy({}, {}, IdleRule::equal)); }

TEST(Apportion, TiesGoToTheFirst) {
  EXPECT_EQ(apportion(2, {1, 1, 1}), (std::vector<std::int64_t>{1, 1, 0}));
  EXPECT_EQ(apportion(5, {0, 0}), (std::vector<std::int64_t>{5, 0}));
}

TEST(IdleRuleNames, AreReadBack) {
  for (const IdleRule rule : {IdleRule::unallocated, IdleRule::by_slice, IdleRule::equal})
    EXPECT_EQ(*parse_idle_rule(to_string(rule)), rule);
  EXPECT_FALSE(parse_idle_rule("fair").ok());
}

}  // namespace
}  // namespace derate
