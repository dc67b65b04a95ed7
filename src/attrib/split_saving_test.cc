#include "attrib/split_saving.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

// In either direction, as large as that of a board in a year, or nothing.
std::int64_t any_amount() {
  return *rc::gen::element<std::int64_t>(0, 1, -1, 1LL << 44, -(1LL << 44)) +
         *rc::gen::inRange<std::int64_t>(-100'000, 100'000);
}

Split split_for_any() {
  Split out{.unallocated_mj = *rc::gen::inRange(0, 2) * *rc::gen::inRange(0, 100'000)};
  out.board_mj = out.unallocated_mj;
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) {
    out.tenants.push_back({.key = std::to_string(i),
                           .base_mj = *rc::gen::inRange(0, 1000),
                           .dynamic_mj = *rc::gen::inRange(0, 2) * *rc::gen::inRange(0, 100'000)});
    out.board_mj += out.tenants.back().total_mj();
  }
  return out;
}

RC_GTEST_PROP(SplitSaving, PartsAddUpToTheWhole, ()) {
  const SavingSums whole{any_amount(), any_amount(), any_amount()};
  const auto split =
      *rc::gen::arbitrary<bool>() ? std::optional(split_for_any()) : std::optional<Split>();
  const SavingSplit parts = split_saving(whole, split);
  RC_ASSERT(parts.tenants.size() == (split ? split->tenants.size() : 0));
  SavingSums sum = parts.unallocated;
  for (const SavingSums& part : parts.tenants) sum.add(part);
  RC_ASSERT(sum == whole);
}

// To a millijoule, and the hundredth of one that doubles lose of the largest.
RC_GTEST_PROP(SplitSaving, PartsAreAsLargeAsThoseOfTheEnergy, ()) {
  const SavingSums whole{any_amount(), any_amount(), any_amount()};
  const Split split = split_for_any();
  RC_PRE(split.board_mj > 0);
  const SavingSplit parts = split_saving(whole, split);
  const auto check = [&](const SavingSums& part, std::int64_t energy_mj) {
    const double share = static_cast<double>(energy_mj) / static_cast<double>(split.board_mj);
    for (const auto field :
         {&SavingSums::energy_mj, &SavingSums::at_highest_mj, &SavingSums::sd_mj}) {
      const auto all = static_cast<double>(whole.*field);
      RC_ASSERT(std::abs(static_cast<double>(part.*field) - share * all) <= 1.01);
    }
  };
  check(parts.unallocated, split.unallocated_mj);
  for (std::size_t i = 0; i < split.tenants.size(); ++i)
    check(parts.tenants[i], split.tenants[i].total_mj());
}

TEST(SplitSaving, WhereNothingWasUsedNobodySavedIt) {
  const SavingSums whole{5, 7, -1};
  EXPECT_EQ(split_saving(whole, std::nullopt).unallocated, whole);
  EXPECT_EQ(split_saving(whole, Split{}).unallocated, whole);
  Split idle;
  idle.tenants = {{.key = "a"}, {.key = "b"}};
  const SavingSplit parts = split_saving(whole, idle);
  EXPECT_EQ(parts.unallocated, whole);
  EXPECT_EQ(parts.tenants, std::vector<SavingSums>(2));
}

}  // namespace
}  // namespace derate
