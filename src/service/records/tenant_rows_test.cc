#include "service/records/tenant_rows.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace derate {
namespace {

using namespace std::chrono_literals;

using Pictures = std::vector<std::shared_ptr<const AttributionPicture>>;

// The accounts of a GPU, and pictures of them as GpuAttribution makes them.
class AccountsRig {
 public:
  static constexpr Duration kTick = 1s;

  void tick(const std::vector<std::pair<std::string, std::int64_t>>& used, std::int64_t unallocated,
            Duration after = kTick) {
    now += after;
    newest_ = Split{.length = kTick, .board_mj = unallocated, .unallocated_mj = unallocated};
    for (const auto& [key, energy] : used) {
      TenantEnergy tenant{.key = key};
      tenant.dynamic_mj = energy;
      newest_.board_mj += energy;
      newest_.tenants.push_back(tenant);
    }
    accounts.add(newest_, now);
    (void)accounts.close_unseen(now - GpuAttribution::kForgetAfter);
  }
  Pictures pictures() const {
    AttributionPicture out{.id = {.index = 0, .uuid = "GPU-1"},
                           .method = &split_methods().front(),
                           .board = accounts.board()};
    out.newest = {newest_.length, newest_.board_mj, newest_.unallocated_mj, std::nullopt};
    for (const TenantEnergy& energy : newest_.tenants)
      out.tenants.push_back({energy, labels(energy.key), accounts.open().at(energy.key).sums});
    return {std::make_shared<const AttributionPicture>(std::move(out))};
  }
  // By its first letter a tenant is of a pod, of a job, or of neither.
  static TenantLabels labels(const std::string& key) {
    TenantLabels out{.process = key};
    if (key.front() == 'p') out.pod = key.substr(0, 2);
    if (key.front() == 'j') out.job = key.substr(0, 2);
    return out;
  }

  EnergyAccounts accounts;
  Instant now{1h};

 private:
  Split newest_;
};

std::int64_t sum_of(const TenantRowSums& sums) {
  std::int64_t out = sums.other_mj + sums.ended_mj;
  for (const TenantRow& row : sums.rows) out += row.energy_mj;
  return out;
}

const TenantRow* row_of(const TenantTable& table, const std::string& key) {
  for (const TenantRow& row : table.tenants.rows)
    if (row.key == key) return &row;
  return nullptr;
}

TEST(TenantRows, EachTenantHasItsEnergyAndThePowerOfTheNewestTick) {
  AccountsRig rig;
  TenantRows rows;
  rig.tick({{"a", 100}, {"p1.x", 50}}, 20);
  rows.take(rig.pictures(), rig.now);
  rig.tick({{"a", 300}}, 20);
  rows.take(rig.pictures(), rig.now);
  const TenantTable& table = *rows.tables().front();
  EXPECT_EQ(row_of(table, "a")->energy_mj, 400);
  EXPECT_EQ(row_of(table, "a")->power, Watts(0.3));
  EXPECT_EQ(row_of(table, "p1.x")->energy_mj, 50);
  EXPECT_FALSE(row_of(table, "p1.x")->power);
  EXPECT_EQ(row_of(table, "p1.x")->who.pod, "p1");
  EXPECT_EQ(table.board_mj, 490);
  EXPECT_EQ(table.unallocated_mj, 40);
  EXPECT_EQ(table.unallocated_power, Watts(0.02));
  EXPECT_EQ(table.tenants.other_mj, 0);
  EXPECT_FALSE(table.tenants.other_power);
  ASSERT_EQ(table.owners.rows.size(), 1u);
  EXPECT_EQ(table.unowned_mj, 400);
}

TEST(TenantRows, APictureIsTakenOnce) {
  AccountsRig rig;
  TenantRows rows;
  rig.tick({{"a", 100}}, 20);
  const Pictures first = rig.pictures();
  rows.take(first, rig.now);
  const auto before = rows.tables().front();
  rows.take(first, rig.now + 1s);
  rows.take(rig.pictures(), rig.now + 2s);  // made anew, of the same tick
  EXPECT_EQ(rows.tables().front(), before);
}

TEST(TenantRows, WhoComesWhenAllRowsAreTakenIsOther) {
  AccountsRig rig;
  TenantRows rows(2);
  rig.tick({{"a", 10}, {"b", 30}, {"c", 20}}, 0);  // who used most has a row
  rows.take(rig.pictures(), rig.now);
  const TenantTable& first = *rows.tables().front();
  EXPECT_EQ(row_of(first, "a"), nullptr);
  EXPECT_EQ(first.tenants.other_mj, 10);
  EXPECT_EQ(first.tenants.others, 1u);
  EXPECT_EQ(first.tenants.other_power, Watts(0.01));
  // Ten minutes after `b` was last seen its row is free; what `a` used before stays where it was.
  rig.tick({{"a", 10}, {"c", 20}}, 0, 10min);
  rows.take(rig.pictures(), rig.now);
  EXPECT_EQ(row_of(*rows.tables().front(), "a"), nullptr);
  rig.tick({{"a", 10}, {"c", 20}}, 0);
  rows.take(rig.pictures(), rig.now);
  const TenantTable& last = *rows.tables().front();
  ASSERT_NE(row_of(last, "a"), nullptr);
  EXPECT_EQ(row_of(last, "a")->energy_mj, 10);
  EXPECT_EQ(last.tenants.other_mj, 20);
  EXPECT_EQ(last.tenants.ended_mj, 30);
  EXPECT_EQ(last.board_mj, sum_of(last.tenants));
}

TEST(TenantRows, TenantsOfOnePodAreOneOwner) {
  AccountsRig rig;
  TenantRows rows;
  rig.tick({{"p1.x", 100}, {"p1.y", 50}, {"j7", 5}, {"a", 1}}, 20);
  rows.take(rig.pictures(), rig.now);
  const TenantTable& table = *rows.tables().front();
  ASSERT_EQ(table.owners.rows.size(), 2u);
  const TenantRow& pod = table.owners.rows.front();  // the most first
  EXPECT_EQ(pod.who.pod, "p1");
  EXPECT_EQ(pod.who.process, "");
  EXPECT_EQ(pod.energy_mj, 150);
  EXPECT_EQ(pod.power, Watts(0.15));
}

TEST(TenantRows, InstancesAreThoseOfTheNewestReading) {
  AccountsRig rig;
  TenantRows rows;
  Tenancy tenancy;
  tenancy.instances.push_back({.id = 3, .uuid = "MIG-1", .profile = "1g.18gb"});
  rows.read({.index = 0, .uuid = "GPU-1"}, tenancy);
  rig.tick({}, 20);
  rows.take(rig.pictures(), rig.now);
  ASSERT_EQ(rows.tables().front()->instances.size(), 1u);
  EXPECT_EQ(rows.tables().front()->instances.front().profile, "1g.18gb");
}

// However tenants come, go, come back and are forgotten, and whichever pictures are missed: rows
// are bounded, nothing goes back, and all of it is the board's.
RC_GTEST_PROP(TenantRows, AddUpAndNeverGoBack, ()) {
  const auto most = *rc::gen::inRange<std::size_t>(1, 6);
  AccountsRig rig;
  TenantRows rows(most);
  std::map<std::string, std::int64_t> known;  // of rows that are there
  TenantTable before{.tenants = {}, .owners = {}};
  const int ticks = *rc::gen::inRange(1, 60);
  for (int i = 0; i < ticks; ++i) {
    std::map<std::string, std::int64_t> used;
    const int tenants = *rc::gen::inRange(0, 8);
    for (int n = 0; n < tenants; ++n) {
      const char kind = *rc::gen::element('a', 'p', 'j');
      used[kind + std::to_string(*rc::gen::inRange(0, 8))] = *rc::gen::inRange(0, 100'000);
    }
    const Duration after = *rc::gen::weightedElement<Duration>({{8, 1s}, {1, 5min}, {1, 11min}});
    rig.tick({used.begin(), used.end()}, *rc::gen::inRange(0, 5000), after);
    if (*rc::gen::weightedElement<bool>({{1, true}, {5, false}})) continue;  // missed
    rows.take(rig.pictures(), rig.now);
    const TenantTable& table = *rows.tables().front();
    RC_ASSERT(table.tenants.rows.size() <= most);
    RC_ASSERT(table.owners.rows.size() <= most);
    RC_ASSERT(table.board_mj == rig.accounts.board().board_mj);
    RC_ASSERT(table.unallocated_mj == rig.accounts.board().unallocated_mj);
    RC_ASSERT(table.board_mj == table.unallocated_mj + sum_of(table.tenants));
    RC_ASSERT(table.board_mj == table.unallocated_mj + sum_of(table.owners) + table.unowned_mj);
    RC_ASSERT(table.tenants.other_mj >= before.tenants.other_mj);
    RC_ASSERT(table.tenants.ended_mj >= before.tenants.ended_mj);
    RC_ASSERT(table.owners.other_mj >= before.owners.other_mj);
    RC_ASSERT(table.unowned_mj >= before.unowned_mj);
    std::map<std::string, std::int64_t> now;
    for (const TenantRow& row : table.tenants.rows) {
      now[row.key] = row.energy_mj;
      if (const auto at = known.find(row.key); at != known.end())
        RC_ASSERT(row.energy_mj >= at->second);
    }
    for (const TenantRow& row : before.tenants.rows)
      if (!now.contains(row.key)) RC_ASSERT(rig.now - row.seen > TenantRowTable::kKeepEnded);
    known = std::move(now);
    before = table;
  }
}

// Where there is a row for everyone and no picture is missed, each has what its account has.
RC_GTEST_PROP(TenantRows, WithRowsForAllEachHasWhatItsAccountHas, ()) {
  AccountsRig rig;
  TenantRows rows;
  const int ticks = *rc::gen::inRange(1, 40);
  for (int i = 0; i < ticks; ++i) {
    std::map<std::string, std::int64_t> used;
    for (int n = 0; n < 5; ++n)
      if (*rc::gen::arbitrary<bool>())
        used["a" + std::to_string(n)] = *rc::gen::inRange(0, 100'000);
    const Duration after = *rc::gen::weightedElement<Duration>({{8, 1s}, {1, 4min}, {1, 11min}});
    rig.tick({used.begin(), used.end()}, 7, after);
    rows.take(rig.pictures(), rig.now);
  }
  const TenantTable& table = *rows.tables().front();
  RC_ASSERT(table.tenants.rows.size() == rig.accounts.open().size());
  for (const auto& [key, account] : rig.accounts.open())
    RC_ASSERT(row_of(table, key) != nullptr &&
              row_of(table, key)->energy_mj == account.sums.total_mj());
  RC_ASSERT(table.tenants.ended_mj == rig.accounts.closed_mj());
  RC_ASSERT(table.tenants.other_mj == 0);
}

// Ten thousand tenants, in waves of any size.
RC_GTEST_PROP(TenantRows, AFloodIsBounded, ()) {
  constexpr int kTenants = 10'000;
  AccountsRig rig;
  TenantRows rows;
  int next = 0;
  while (next < kTenants) {
    const int wave = std::min(kTenants - next, *rc::gen::inRange(1, 4000));
    std::vector<std::pair<std::string, std::int64_t>> used;
    for (int i = 0; i < wave; ++i)
      used.emplace_back("j" + std::to_string(next + i), (next + i) % 1000);
    next += wave;
    rig.tick(used, 100, *rc::gen::element<Duration>(1s, 6min));
    rows.take(rig.pictures(), rig.now);
    const TenantTable& table = *rows.tables().front();
    RC_ASSERT(table.tenants.rows.size() <= TenantRows::kMostRows);
    RC_ASSERT(table.owners.rows.size() <= TenantRows::kMostRows);
    RC_ASSERT(table.tenants.rows.capacity() <= 2 * TenantRows::kMostRows);
    RC_ASSERT(table.board_mj == table.unallocated_mj + sum_of(table.tenants));
  }
}

}  // namespace
}  // namespace derate
