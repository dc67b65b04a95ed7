// What holds for every method of the table.
#include "attrib/split.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "attrib/allocate_energy.h"
#include "attrib/test_ticks.h"
#include "attrib/training.h"
#include "base/check.h"
#include "base/text.h"

namespace derate {
namespace {

const BoardFacts kPlainBoard{
    .chip = "H200", .base = Watts(75), .context = Watts(42), .highest_clock = Megahertz(1980)};

// Two workloads at several levels, on the whole GPU and on an instance.
std::vector<TrainingRun> some_runs() {
  std::vector<TrainingRun> runs{{.workload = "gemm"}, {.workload = "copy"}};
  for (int i = 1; i <= 40; ++i)
    for (const bool instance : {false, true}) {
      const Fraction busy(i / 40.0), share(instance ? 3 / 7.0 : 1);
      TrainingPoint point{.activity = {.sm = busy, .tensor = busy * 0.8, .dram = busy * 0.3},
                          .clock = Megahertz(1200 + 195 * (i % 5)),
                          .above_idle = Watts(12.0 * i * share.value()),
                          .instance = instance,
                          .share = share,
                          .memory_share = share};
      runs[0].points.push_back(point);
      point.activity = {.sm = busy, .integer = busy * 0.2, .dram = busy};
      point.above_idle = Watts(7.0 * i * share.value());
      runs[1].points.push_back(point);
    }
  return runs;
}

std::unique_ptr<SplitMethod> make_any(const SplitMethodInfo& method) {
  static const std::vector<TrainingRun> runs = some_runs();
  const std::string_view name = method.name;
  if (!method.needs_training) return method.make(kPlainBoard);
  if (name == "offline-linear") return make_offline_linear(kPlainBoard, runs);
  if (name == "offline-trees") return make_offline_trees(kPlainBoard, runs);
  if (name == "workload-models")
    return make_workload_models(kPlainBoard, runs, [](std::string_view key) {
      return std::string(key < "3" ? "gemm" : key < "6" ? "copy" : "");
    });
  CHECK(name == "exact-curve");
  return make_exact_curve(kPlainBoard, [](const TenantTick& tenant, Megahertz clock) {
    return Watts(tenant.share.value() * clock.value() * (tenant.context ? 0.2 : 0.1));
  });
}

TEST(SplitMethods, AreFoundByName) {
  ASSERT_FALSE(split_methods().empty());
  for (const SplitMethodInfo& method : split_methods()) {
    EXPECT_EQ(*find_split_method(method.name), &method);
    EXPECT_EQ(method.make == nullptr, method.needs_training) << method.name;
  }
  const auto missing = find_split_method("fair");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("activity-ratio"), std::string::npos);
}

// Each method's section in the manual, in the table's order, and no section of a method that is
// not.
TEST(SplitMethods, TheManualHasThemAll) {
  const auto page = read_file(DERATE_SOURCE_DIR "/docs/attribute-methods.md");
  ASSERT_TRUE(page.ok()) << page.error().message;
  std::vector<std::string> described, there;
  std::istringstream lines(*page);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("### ")) described.push_back(line.substr(4));
  for (const SplitMethodInfo& method : split_methods()) there.push_back(method.name);
  EXPECT_EQ(described, there);
}

RC_GTEST_PROP(SplitMethodsProperty, ShareNothingOutToWhoDoesNothing, ()) {
  AttribTick tick = any_split_tick(any_tenant);
  const std::size_t at = *rc::gen::inRange<std::size_t>(0, tick.tenants.size() + 1);
  TenantTick nobody = any_tenant(9);
  nobody.context = false;
  const auto nothing = [] { return *rc::gen::element<double>(0, -0.0); };
  if (nobody.sm_utilisation) nobody.sm_utilisation = Fraction(nothing());
  if (nobody.memory_utilisation) nobody.memory_utilisation = Fraction(nothing());
  nobody.activity = any_activity([&] { return Fraction(nothing()); });
  tick.tenants.insert(tick.tenants.begin() + static_cast<std::ptrdiff_t>(at), nobody);
  for (const SplitMethodInfo& method : split_methods())
    RC_ASSERT(make_any(method)->step(tick).tenants[at].dynamic == Watts(0));
}

RC_GTEST_PROP(SplitMethodsProperty, GiveFiniteWattsForAnyTick, ()) {
  for (const SplitMethodInfo& method : split_methods()) {
    const auto split = make_any(method);
    for (int i = 0; i < 3; ++i) {
      AttribTick tick = any_split_tick(absurd_tenant);
      if (*rc::gen::arbitrary<bool>()) tick.sm_clock = Megahertz(*rc::gen::element(0.0, 1e308));
      const PowerEstimate estimate = split->step(tick);
      RC_ASSERT(estimate.tenants.size() == tick.tenants.size());
      for (const double watts : dynamic_watts(estimate))
        RC_ASSERT((std::isfinite(watts) && watts >= 0));
      const auto settled = allocate_energy(tick, estimate, IdleRule::unallocated);
      std::int64_t all = settled->unallocated_mj;
      for (const TenantEnergy& tenant : settled->tenants) all += tenant.total_mj();
      RC_ASSERT(all == tick.energy_mj);
    }
  }
}

// Who comes first gets no more; a millionth is for methods whose sums run in the order of tenants.
RC_GTEST_PROP(SplitMethodsProperty, TheOrderOfTenantsDoesNotMatter, ()) {
  const AttribTick tick = any_split_tick(any_tenant);
  AttribTick turned = tick;
  const auto by = *rc::gen::inRange<std::size_t>(0, tick.tenants.size() + 1);
  std::rotate(turned.tenants.begin(), turned.tenants.begin() + static_cast<std::ptrdiff_t>(by),
              turned.tenants.end());
  for (const SplitMethodInfo& method : split_methods()) {
    std::vector<double> here = dynamic_watts(make_any(method)->step(tick));
    const std::vector<double> there = dynamic_watts(make_any(method)->step(turned));
    std::rotate(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(by), here.end());
    for (std::size_t i = 0; i < here.size(); ++i)
      RC_ASSERT(std::abs(here[i] - there[i]) <= 1e-6 * std::max(1.0, here[i]));
  }
}

}  // namespace
}  // namespace derate
