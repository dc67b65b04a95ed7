#include "attrib/features.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attrib/test_ticks.h"

namespace derate {
namespace {

RC_GTEST_PROP(Features, AreSharesWhateverTheTickHolds, ()) {
  const TenantTick tenant = absurd_tenant(0);
  for (const double feature : power_features(tenant, any_share()))
    RC_ASSERT((feature >= 0 && feature <= 1));
}

RC_GTEST_PROP(Features, CoreScaleIsAShareAndGrowsWithTheClock, ()) {
  const auto clock = [] {
    return std::optional(Megahertz(*rc::gen::element(-5.0, 0.0, std::nan(""), 1e300)));
  };
  RC_ASSERT(core_scale(clock(), Megahertz(1980)) <= 1);
  const double scale = core_scale(Megahertz(900), clock());
  RC_ASSERT((scale >= 0 && scale <= 1));
  const double mhz = *rc::gen::inRange(1, 1980);
  RC_ASSERT(core_scale(Megahertz(mhz), Megahertz(1980)) <
            core_scale(Megahertz(mhz + 1), Megahertz(1980)));
}

TEST(Features, CoreScaleIsOneWithoutAClock) {
  EXPECT_EQ(core_scale({}, Megahertz(1980)), 1);
  EXPECT_EQ(core_scale(Megahertz(990), {}), 1);
  EXPECT_NEAR(core_scale(Megahertz(990), Megahertz(1980)), std::pow(0.5, 2.2), 1e-12);
}

TEST(Features, CountersCountByWhatIsHeld) {
  TenantTick tenant{.signal = SignalKind::instance_activity, .share = Fraction(0.5)};
  tenant.memory_share = Fraction(0.25);
  tenant.activity = {.integer = Fraction(0.1),
                     .tensor = Fraction(0.6),
                     .dram = Fraction(0.4),
                     .fp64 = Fraction(0.2),
                     .fp32 = Fraction(0.3)};
  tenant.activity.sm = Fraction(0.8);
  EXPECT_EQ(power_features(tenant, 0.5), (PowerFeatures{0.2, 0.15, 0.075, 0.05, 0.025, 0.1}));
}

TEST(Features, WithoutCountersTimeSharesAndThenWhatIsHeld) {
  TenantTick tenant{.signal = SignalKind::instance_activity, .share = Fraction(0.5)};
  tenant.memory_share = Fraction(0.25);
  tenant.sm_utilisation = Fraction(0.3);
  tenant.memory_utilisation = Fraction(0.1);
  EXPECT_EQ(power_features(tenant, 1), (PowerFeatures{0.3, 0, 0, 0, 0, 0.1}));
  tenant.sm_utilisation = {};
  EXPECT_EQ(power_features(tenant, 1), (PowerFeatures{0.5, 0, 0, 0, 0, 0.25}));
  tenant.context = false;
  EXPECT_EQ(power_features(tenant, 1), PowerFeatures{});
}

}  // namespace
}  // namespace derate
