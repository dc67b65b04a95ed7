#include "attrib/energy_accounts.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

Split any_split() {
  Split out{.length = std::chrono::milliseconds(*rc::gen::inRange(1, 3000))};
  out.unallocated_mj = *rc::gen::inRange(0, 100'000);
  out.board_mj = out.unallocated_mj;
  for (const char* key : {"a", "b", "c", "d", "e"}) {
    if (*rc::gen::arbitrary<bool>()) continue;
    TenantEnergy tenant{.key = key};
    tenant.base_mj = *rc::gen::inRange(0, 100'000);
    tenant.context_mj = *rc::gen::inRange(0, 100'000);
    tenant.dynamic_mj = *rc::gen::inRange(0, 700'000);
    if (*rc::gen::arbitrary<bool>()) tenant.sigma_mj = *rc::gen::inRange(0, 10'000);
    if (*rc::gen::arbitrary<bool>()) tenant.prior_share = percent(*rc::gen::inRange(0, 101));
    out.board_mj += tenant.total_mj();
    out.tenants.push_back(tenant);
  }
  return out;
}

// However tenants come, go and are closed, nothing of the board is lost.
RC_GTEST_PROP(EnergyAccounts, BoardIsUnallocatedAndOpenAndClosed, ()) {
  EnergyAccounts accounts;
  std::int64_t board = 0, handed_over = 0;
  Instant now{};
  const int ticks = *rc::gen::inRange(0, 50);
  for (int i = 0; i < ticks; ++i) {
    const Split split = any_split();
    now += split.length;
    board += split.board_mj;
    accounts.add(split, now);
    if (!*rc::gen::weightedElement<bool>({{4, false}, {1, true}})) continue;
    const Instant before = now - std::chrono::seconds(*rc::gen::inRange(0, 5));
    for (const auto& [key, account] : accounts.close_unseen(before)) {
      RC_ASSERT(account.seen < before);
      handed_over += account.sums.total_mj();
    }
  }
  std::int64_t sum = accounts.board().unallocated_mj + handed_over;
  for (const auto& [key, account] : accounts.open()) {
    RC_ASSERT(account.sums.deviation_mj().value_or(0) <=
              account.sums.sigma_mj + account.sums.dynamic_mj);
    sum += account.sums.total_mj();
  }
  RC_ASSERT(accounts.board().board_mj == board);
  RC_ASSERT(sum == board);
  RC_ASSERT(accounts.closed_mj() == handed_over);
}

// Of each tenant, over any ticks: the dynamic energy of those that are marked, and no other.
RC_GTEST_PROP(EnergyAccounts, PriorIsTheDynamicEnergyOfMarkedTicks, ()) {
  EnergyAccounts accounts;
  std::map<std::string, std::int64_t> prior;
  for (int i = *rc::gen::inRange(0, 50); i > 0; --i) {
    const Split split = any_split();
    accounts.add(split, Instant{});
    for (const TenantEnergy& tenant : split.tenants)
      prior[tenant.key] +=
          tenant.prior_share.value_or(Fraction(0)) > Fraction(0.5) ? tenant.dynamic_mj : 0;
  }
  RC_ASSERT(accounts.open().size() == prior.size());
  for (const auto& [key, account] : accounts.open()) {
    RC_ASSERT(account.sums.prior_mj == prior[key]);
    RC_ASSERT(account.sums.prior_mj <= account.sums.dynamic_mj);
  }
}

TEST(EnergyAccounts, WhoNeverSaidHowSureItWasHasNoPrior) {
  EnergyAccounts accounts;
  Split split{.length = std::chrono::seconds(1), .board_mj = 200};
  split.tenants = {{.key = "says", .dynamic_mj = 100, .sigma_mj = 5, .prior_share = kMostlyPrior},
                   {.key = "silent", .dynamic_mj = 100}};
  accounts.add(split, Instant{});
  EXPECT_EQ(accounts.open().at("says").sums.known_prior_mj(), 0);
  EXPECT_EQ(accounts.open().at("silent").sums.known_prior_mj(), std::nullopt);
  split.tenants[0].prior_share = Fraction(0.51);
  accounts.add(split, Instant{});
  EXPECT_EQ(accounts.open().at("says").sums.known_prior_mj(), 100);
}

TEST(EnergyAccounts, DeviationsOfATenantAddUp) {
  EnergyAccounts accounts;
  Split split{.length = std::chrono::seconds(1), .board_mj = 200};
  split.tenants = {{.key = "sure", .dynamic_mj = 100, .sigma_mj = 5},
                   {.key = "silent", .dynamic_mj = 100}};
  accounts.add(split, Instant{});
  accounts.add(split, Instant{});
  EXPECT_EQ(accounts.open().at("sure").sums.deviation_mj(), 10);
  EXPECT_EQ(accounts.open().at("silent").sums.deviation_mj(), std::nullopt);
  split.tenants[0].sigma_mj.reset();
  accounts.add(split, Instant{});
  EXPECT_EQ(accounts.open().at("sure").sums.deviation_mj(), 110);
}

TEST(EnergyAccounts, KeepsNoMoreOpenThanItMay) {
  EnergyAccounts accounts;
  Instant now{};
  for (std::size_t i = 0; i < EnergyAccounts::kMostOpen + 10; ++i) {
    Split split{.board_mj = 1};
    split.tenants = {{.key = std::to_string(i), .dynamic_mj = 1}};
    accounts.add(split, now += Duration(1));
  }
  const auto closed = accounts.close_unseen(Instant{});
  EXPECT_EQ(closed.size(), 10u);
  EXPECT_EQ(accounts.open().size(), EnergyAccounts::kMostOpen);
  EXPECT_EQ(accounts.closed_mj(), 10);
}

}  // namespace
}  // namespace derate
