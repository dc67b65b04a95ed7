#include "telemetry/usage_pending.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

const WallTime kNow{20'000 * 24h};

GpuAttribution a_gpu() {
  return {{0, "GPU-1", "", ""}, BoardFacts{}, *attribution_rules("", "unallocated")};
}

// A tick, perhaps without energy.
GpuAttribution::Taken any_tick() {
  GpuAttribution::Taken out;
  out.sourced.tick.length = 1s;
  if (*rc::gen::inRange(0, 4) == 0) return out;
  Split& split = out.split.emplace();
  split.length = 1s;
  split.board_mj = split.unallocated_mj = *rc::gen::inRange(0, 1000);
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    split.tenants.push_back({.key = std::to_string(i),
                             .dynamic_mj = *rc::gen::inRange(0, 1000),
                             .prior_share = percent(*rc::gen::inRange(0, 101))});
    split.board_mj += split.tenants.back().dynamic_mj;
  }
  return out;
}

// What of a tick is the prior's.
std::int64_t prior_of(const GpuAttribution::Taken& tick) {
  std::int64_t out = 0;
  for (const TenantEnergy& tenant : tick.split->tenants)
    if (*tenant.prior_share > kMostlyPrior) out += tenant.dynamic_mj;
  return out;
}

UsageSavings any_savings() {
  UsageSavings out;
  for (const char* method : {"curves/1", "curves/2"})
    if (*rc::gen::arbitrary<bool>())
      out[method] = {*rc::gen::inRange(-1000, 5000), *rc::gen::inRange(-1000, 5000), 1};
  return out;
}

// Whatever is split, and also when rows come back because they could not be written.
RC_GTEST_PROP(UsagePending, WhatIsAddedComesOutOnce, ()) {
  const GpuAttribution gpu = a_gpu();
  UsagePending pending;
  UsageSavings added, out;
  std::int64_t board = 0, prior = 0;
  for (int i = *rc::gen::inRange(0, 20); i > 0; --i) {
    const GpuAttribution::Taken tick = any_tick();
    const UsageSavings savings = any_savings();
    const WallTime at = kNow + *rc::gen::inRange(0, 200) * 1s;
    if (*rc::gen::inRange(0, 5) == 0) {
      pending.add_unallocated("GPU-1", savings, at);
    } else {
      pending.add(gpu, tick, at, savings);
      if (tick.split) board += tick.split->board_mj, prior += prior_of(tick);
    }
    add_savings(added, savings);
    if (*rc::gen::arbitrary<bool>()) pending.add(pending.take());
  }
  const UsageRows rows = pending.take();
  RC_ASSERT(pending.empty());
  for (const UsageBoardRow& row : rows.boards) {
    add_savings(out, row.sums.unallocated_savings);
    board -= row.sums.unallocated_mj;
  }
  for (const UsageRow& row : rows.tenants) {
    add_savings(out, row.sums.savings);
    board -= row.sums.total_mj();
    prior -= row.sums.prior_mj;
  }
  std::erase_if(added, [](const auto& one) { return one.second == SavingSums{}; });
  std::erase_if(out, [](const auto& one) { return one.second == SavingSums{}; });
  RC_ASSERT(out == added);
  RC_ASSERT(board == 0);
  RC_ASSERT(prior == 0);
}

TEST(UsagePending, DividesWhatWasSavedAsTheEnergyWas) {
  GpuAttribution::Taken tick;
  tick.split = Split{.length = 1s, .board_mj = 100, .unallocated_mj = 25};
  tick.split->tenants = {{.key = "a", .dynamic_mj = 75}, {.key = "idle"}};
  UsagePending pending;
  pending.add(a_gpu(), tick, kNow, {{"curves/1", {80, -40, 4}}});
  const UsageRows rows = pending.take();
  ASSERT_EQ(rows.tenants.size(), 2u);
  EXPECT_EQ(rows.tenants[0].sums.savings, (UsageSavings{{"curves/1", {60, -30, 3}}}));
  EXPECT_TRUE(rows.tenants[1].sums.savings.empty());
  EXPECT_EQ(rows.boards[0].sums.unallocated_savings, (UsageSavings{{"curves/1", {20, -10, 1}}}));
}

TEST(UsagePending, WithoutAFigureThereIsNone) {
  GpuAttribution::Taken tick;
  tick.split = Split{.length = 1s, .board_mj = 100, .unallocated_mj = 100};
  UsagePending pending;
  pending.add(a_gpu(), tick, kNow);
  pending.add_unallocated("GPU-2", {}, kNow);
  const UsageRows rows = pending.take();
  ASSERT_EQ(rows.boards.size(), 1u);
  EXPECT_TRUE(rows.boards[0].sums.unallocated_savings.empty());
}

}  // namespace
}  // namespace derate
