#include "attrib/baseline_splits.h"

#include <gtest/gtest.h>

#include "attrib/test_ticks.h"

namespace derate {
namespace {

TenantTick instance(double share, double graphics, double sm) {
  return {.signal = SignalKind::instance_activity,
          .share = Fraction(share),
          .activity = {.graphics = Fraction(graphics), .sm = Fraction(sm)}};
}

TenantTick process(double sm_utilisation) {
  return {.signal = SignalKind::process_utilisation, .sm_utilisation = Fraction(sm_utilisation)};
}

using Weights = std::vector<double>;
using Make = std::unique_ptr<SplitMethod> (*)(const BoardFacts&);

Weights weights(Make make, std::vector<TenantTick> tenants) {
  return dynamic_watts(make({})->step({.tenants = std::move(tenants)}));
}

// A large instance, a small one, one whose jobs have no context, and one without counters.
std::vector<TenantTick> instances() {
  std::vector<TenantTick> out{instance(0.5, 1.0, 0.5),
                              instance(0.25, 0.75, 0.5),
                              instance(0.125, 0, 0),
                              {.share = Fraction(0.125)}};
  out[2].context = false;
  return out;
}

TEST(NaiveSplits, OfInstances) {
  EXPECT_EQ(weights(make_equal_split, instances()), (Weights{1, 1, 0, 1}));
  EXPECT_EQ(weights(make_slices_split, instances()), (Weights{0.5, 0.25, 0, 0.125}));
  EXPECT_EQ(weights(make_sm_share_split, instances()), (Weights{0.25, 0.125, 0, 0.125}));
  EXPECT_EQ(weights(make_activity_ratio_split, instances()), (Weights{1, 0.75, 0, 1}));
}

TEST(NaiveSplits, OfProcesses) {
  const std::vector<TenantTick> processes{process(0.6), process(0.2), process(0)};
  EXPECT_EQ(weights(make_equal_split, processes), (Weights{1, 1, 1}));
  EXPECT_EQ(weights(make_slices_split, processes), (Weights{1, 1, 1}));
  EXPECT_EQ(weights(make_sm_share_split, processes), (Weights{0.6, 0.2, 0.0}));
  EXPECT_EQ(weights(make_activity_ratio_split, processes), (Weights{0.6, 0.2, 0.0}));
}

TEST(NaiveSplits, ActivityRatioTakesTheSmsWhereTheEngineIsSilent) {
  TenantTick tenant = instance(0.5, 0, 0.4);
  tenant.activity.graphics = {};
  EXPECT_EQ(weights(make_activity_ratio_split, {tenant}), Weights{0.4});
}

TEST(NaiveSplits, AreToldTheBoard) {
  const PowerEstimate estimate =
      make_equal_split({.base = Watts(75), .context = Watts(42)})->step({});
  EXPECT_EQ(estimate.base, Watts(75));
  EXPECT_EQ(estimate.context, Watts(42));
}

}  // namespace
}  // namespace derate
