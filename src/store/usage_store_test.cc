#include "store/usage_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "base/when.h"
#include "store/usage_bill.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kDay = 24h;
const WallTime kBegin{20'000 * 24h};
const WallTime kLong = kBegin + 1000 * kDay;

// Of none, one or two methods; what is believed may be taken back.
UsageSavings any_savings() {
  UsageSavings out;
  for (const char* method : {"curves/1", "curves/2"})
    if (*rc::gen::arbitrary<bool>())
      out[method] = {*rc::gen::inRange(-1000, 5000), *rc::gen::inRange(-1000, 5000),
                     *rc::gen::inRange(-100, 500)};
  return out;
}

UsageRow any_row(WallTime bucket, const std::string& gpu) {
  UsageRow out{.bucket = bucket, .gpu = gpu};
  const int who = *rc::gen::inRange(0, 6);
  out.key = std::to_string(who);
  out.labels.user = *rc::gen::element<std::string>("", "alice", "bob", "o'hara \"; DROP TABLE x");
  out.labels.process = "job";
  if (who % 2 == 0) out.labels.pid = 100 + who;
  if (who > 3) out.labels.name_space = "ns", out.labels.pod = "pod";
  out.sums = {*rc::gen::inRange(0, 100),
              *rc::gen::inRange(0, 100),
              *rc::gen::inRange(0, 5000),
              *rc::gen::inRange(0, 500),
              0,
              *rc::gen::inRange(0, 5000),
              60'000,
              any_savings()};
  return out;
}

// A minute of a GPU that adds up.
UsageRows any_minute(WallTime bucket) {
  UsageRows out;
  for (const char* gpu : {"GPU-1", "GPU-2"}) {
    UsageBoardRow board{bucket, gpu, {.unallocated_mj = *rc::gen::inRange(0, 1000)}};
    board.sums.time_ms = 60'000;
    board.sums.unallocated_savings = any_savings();
    const int tenants = *rc::gen::inRange(0, 4);
    for (int i = 0; i < tenants; ++i) {
      out.tenants.push_back(any_row(bucket, gpu));
      board.sums.board_mj += out.tenants.back().sums.total_mj();
    }
    board.sums.board_mj += board.sums.unallocated_mj;
    out.boards.push_back(board);
  }
  return out;
}

std::int64_t sum_of(const Bill& bill) {
  std::int64_t out = bill.boards.unallocated_mj;
  for (const BillLine& line : bill.lines) out += line.sums.total_mj();
  return out;
}

std::int64_t prior_of(const UsageRows& rows) {
  std::int64_t out = 0;
  for (const UsageRow& row : rows.tenants) out += row.sums.prior_mj;
  return out;
}

std::int64_t prior_of(const Bill& bill) {
  std::int64_t out = 0;
  for (const BillLine& line : bill.lines) out += line.sums.prior_mj;
  return out;
}

UsageSavings savings_of(const UsageRows& rows) {
  UsageSavings out;
  for (const UsageRow& row : rows.tenants) add_savings(out, row.sums.savings);
  for (const UsageBoardRow& row : rows.boards) add_savings(out, row.sums.unallocated_savings);
  return out;
}

// Of one run that has just begun.
Result<void> add(UsageStore& store, const UsageRows& rows) { return store.add(rows, kBegin, {}); }

// Until what was added is so old.
void run_for(UsageStore& store, Duration ran) { RC_ASSERT(store.add({}, kBegin, ran).ok()); }

// By whatever it is billed, before and after minutes became quarters.
RC_GTEST_PROP(UsageStore, EveryBillAddsUpToTheBoards, ()) {
  const Folder folder;
  UsageStore store(folder.file());
  std::int64_t board = 0, prior = 0;
  UsageSavings savings;
  Duration ran{};
  const int minutes = *rc::gen::inRange(1, 12);
  for (int i = 0; i < minutes; ++i) {
    const UsageRows rows = any_minute(kBegin + *rc::gen::inRange(0, 20) * 10min);
    RC_ASSERT(add(store, rows).ok());
    for (const UsageBoardRow& row : rows.boards) board += row.sums.board_mj;
    prior += prior_of(rows);
    add_savings(savings, savings_of(rows));
    run_for(store, ran += *rc::gen::inRange(0, 5) * kDay);
    if (*rc::gen::inRange(0, 4) == 0) RC_ASSERT(store.tidy(400 * kDay).ok());
  }
  const Usage usage = *read_usage(folder.file(), kBegin, kLong);
  const Usage by_day = *read_usage_by_day(folder.file(), kBegin, kLong);
  for (const BillBy by : {BillBy::user, BillBy::job, BillBy::pod, BillBy::container,
                          BillBy::instance, BillBy::process, BillBy::gpu, BillBy::day}) {
    const Bill bill = make_bill(by == BillBy::day ? by_day : usage, by);
    RC_ASSERT(bill.boards.board_mj == board);
    RC_ASSERT(sum_of(bill) == board);
    RC_ASSERT(prior_of(bill) == prior);
    RC_ASSERT(bill.savings == savings);
  }
}

// Cut anywhere on a quarter of an hour, each part has what it had as minutes: every time zone's
// hours are right.
RC_GTEST_PROP(UsageStore, QuartersOfAnHourAreAsTheyWere, ()) {
  const Folder folder;
  UsageStore store(folder.file());
  for (int i = 0; i < 6; ++i)
    RC_ASSERT(add(store, any_minute(kBegin + *rc::gen::inRange(0, 240) * 1min)).ok());
  const WallTime cut = kBegin + *rc::gen::inRange(0, 17) * 15min;
  const auto bill = [&](WallTime from, WallTime to) {
    return make_bill(*read_usage(folder.file(), from, to), BillBy::user);
  };
  const Bill before = bill(kBegin, cut), after = bill(cut, kLong);
  run_for(store, UsageStore::kMinutesFor + 1h);
  RC_ASSERT(store.tidy(400 * kDay).ok());
  RC_ASSERT(bill(kBegin, cut) == before);
  RC_ASSERT(bill(cut, kLong) == after);
  UsageBoardSums boards = before.boards;
  boards.add(after.boards);
  UsageSavings savings = before.savings;
  add_savings(savings, after.savings);
  RC_ASSERT(boards == bill(kBegin, kLong).boards);
  RC_ASSERT(savings == bill(kBegin, kLong).savings);
}

UsageRows one_row(WallTime bucket, std::int64_t mj, const std::string& user = "alice") {
  UsageRow row{.bucket = bucket, .gpu = "GPU-1", .key = "pid:1:2"};
  row.labels = {.pid = 2, .process = "train", .user = user};
  row.sums.dynamic_mj = row.sums.prior_mj = mj;
  row.sums.savings["curves/1"] = {mj, 2 * mj, 1};
  return {{row}, {{bucket, "GPU-1", {.board_mj = mj, .time_ms = 1000}}}};
}

using Savings = UsageSavings;

TEST(UsageStore, AddsToWhatAMinuteHas) {
  const Folder folder;
  UsageStore store(folder.file());
  ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
  ASSERT_TRUE(add(store, one_row(kBegin, 6)).ok());
  ASSERT_TRUE(add(store, one_row(kBegin + 1min, 7)).ok());
  const Usage usage = *read_usage(folder.file(), kBegin, kLong);
  ASSERT_EQ(usage.tenants.size(), 1u);
  EXPECT_EQ(usage.tenants[0].labels, one_row({}, 0).tenants[0].labels);
  EXPECT_EQ(usage.tenants[0].sums.dynamic_mj, 18);
  EXPECT_EQ(usage.tenants[0].sums.prior_mj, 18);
  EXPECT_EQ(usage.tenants[0].sums.savings, (Savings{{"curves/1", {18, 36, 3}}}));
  EXPECT_TRUE(usage.boards[0].sums.unallocated_savings.empty());
  EXPECT_EQ(usage.boards[0].sums.time_ms, 3000);
  EXPECT_EQ(usage.first, kBegin);
  EXPECT_EQ(usage.last, kBegin + 2min);
  EXPECT_TRUE(read_usage(folder.file(), kBegin, kLong, {"GPU-2"})->tenants.empty());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong, {"GPU-2", "GPU-1"})->tenants.size(), 1u);
  EXPECT_EQ(fs::status(folder.file()).permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
}

TEST(UsageStore, OneProcessUnderTwoLabelsIsTwoLinesOfUsers) {
  const Folder folder;
  UsageStore store(folder.file());
  ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
  ASSERT_TRUE(add(store, one_row(kBegin, 6, "")).ok());
  const Usage usage = *read_usage(folder.file(), kBegin, kLong);
  const Bill users = make_bill(usage, BillBy::user);
  ASSERT_EQ(users.lines.size(), 2u);
  EXPECT_EQ(users.lines[0].name, "alice");
  EXPECT_EQ(users.lines[1].name, "");
  const Bill processes = make_bill(usage, BillBy::process);
  ASSERT_EQ(processes.lines.size(), 1u);
  EXPECT_EQ(processes.lines[0].name, "train (2)");
  EXPECT_EQ(processes.lines[0].sums.dynamic_mj, 11);
}

// Within one minute and beyond, as minutes and as a quarter of an hour.
TEST(UsageStore, FiguresOfTwoMethodsAreNeverAddedUp) {
  const Folder folder;
  UsageStore store(folder.file());
  UsageRows rows = one_row(kBegin, 5);
  ASSERT_TRUE(add(store, rows).ok());
  rows.tenants[0].sums.savings = {{"curves/2", {7, 8, 9}}};
  rows.boards[0].sums.unallocated_savings = {{"curves/2", {1, 2, -3}}};
  ASSERT_TRUE(add(store, rows).ok());
  const auto check = [&] {
    const Usage usage = *read_usage(folder.file(), kBegin, kLong);
    EXPECT_EQ(usage.tenants[0].sums.savings,
              (Savings{{"curves/1", {5, 10, 1}}, {"curves/2", {7, 8, 9}}}));
    const Bill bill = make_bill(usage, BillBy::user);
    EXPECT_EQ(bill.savings, (Savings{{"curves/1", {5, 10, 1}}, {"curves/2", {8, 10, 6}}}));
    EXPECT_FALSE(bill_saving(bill.lines[0].sums.savings));
    EXPECT_FALSE(bill_saving(bill.savings));
    const auto nobodys = bill_saving(bill.boards.unallocated_savings);
    ASSERT_TRUE(nobodys);
    EXPECT_EQ(nobodys->method, "curves/2");
  };
  check();
  ASSERT_TRUE(store.add({}, kBegin, UsageStore::kMinutesFor + 1h).ok());
  ASSERT_TRUE(store.tidy(400 * kDay).ok());
  check();
}

// Local days, whatever the time at which the bill begins.
TEST(UsageStore, ABillByDayHasEachDayOnce) {
  const Folder folder;
  UsageStore store(folder.file());
  const WallTime midnight = day_after(kBegin);
  for (const auto after : {Duration(0h), Duration(23h + 59min), Duration(24h), Duration(60h)})
    ASSERT_TRUE(add(store, one_row(midnight + after, 4)).ok());
  const auto bill = [&](WallTime from, WallTime to) {
    return make_bill(*read_usage_by_day(folder.file(), from, to), BillBy::day);
  };
  const Bill all = bill(WallTime{}, kLong);
  ASSERT_EQ(all.lines.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(all.lines[i].name, day_text(midnight + static_cast<int>(i) * kDay));
  EXPECT_EQ(all.lines[0].sums.dynamic_mj, 8);
  EXPECT_EQ(all.lines[2].sums.savings, (Savings{{"curves/1", {4, 8, 1}}}));
  EXPECT_EQ(all.boards.board_mj, 16);
  EXPECT_EQ(bill(midnight + 1min, midnight + 60h).boards.board_mj, 8);
  EXPECT_TRUE(bill(midnight - 2h, midnight - 1h).lines.empty());
}

// Rows without a figure add nothing to those that have one, and have none by themselves.
TEST(UsageStore, WhatIsNotKnownToBeSavedIsNotKept) {
  const Folder folder;
  UsageStore store(folder.file());
  UsageRows rows = one_row(kBegin, 5, "bob");
  rows.tenants[0].sums.savings.clear();
  ASSERT_TRUE(add(store, rows).ok());
  EXPECT_TRUE(make_bill(*read_usage(folder.file(), kBegin, kLong), BillBy::user).savings.empty());
  ASSERT_TRUE(add(store, one_row(kBegin, 6)).ok());
  const Bill bill = make_bill(*read_usage(folder.file(), kBegin, kLong), BillBy::user);
  ASSERT_EQ(bill.lines.size(), 2u);
  EXPECT_TRUE(bill.lines[1].sums.savings.empty());
  EXPECT_NEAR(energy_saving(bill_saving(bill.savings)->saving)->mean, 0.5, 1e-12);
}

TEST(UsageStore, WhatIsTooOldGoesAndItsTenantsWithIt) {
  const Folder folder;
  UsageStore store(folder.file());
  ASSERT_TRUE(add(store, one_row(kBegin, 5, "bob")).ok());
  ASSERT_TRUE(store.add(one_row(kBegin + 10 * kDay, 6), kBegin + 10 * kDay, 10 * kDay).ok());
  ASSERT_TRUE(store.add({}, kBegin + 11 * kDay, 11 * kDay).ok());
  ASSERT_TRUE(store.tidy(10 * kDay).ok());
  const Usage usage = *read_usage(folder.file(), WallTime{}, kLong);
  ASSERT_EQ(usage.tenants.size(), 1u);
  EXPECT_EQ(usage.tenants[0].labels.user, "alice");
  EXPECT_EQ(usage.boards[0].sums.board_mj, 6);
  EXPECT_EQ(usage.tenants[0].sums.savings, (Savings{{"curves/1", {6, 12, 1}}}));
}

TEST(UsageStore, QuartersKeepWhatMinutesHad) {
  const Folder folder;
  UsageStore store(folder.file());
  for (const auto minute : {1min, 14min, 16min})
    ASSERT_TRUE(add(store, one_row(kBegin + minute, 1)).ok());
  ASSERT_TRUE(store.add({}, kBegin, UsageStore::kMinutesFor + 1h).ok());
  ASSERT_TRUE(store.tidy(400 * kDay).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kBegin + 1min)->boards[0].sums.board_mj, 2);
  const Usage rest = *read_usage(folder.file(), kBegin + 15min, kLong);
  EXPECT_EQ(rest.boards[0].sums.board_mj, 1);
  EXPECT_EQ(rest.first, kBegin + 15min);
  EXPECT_EQ(rest.last, kBegin + 30min);
  // What comes late has its minute, until that is old as well.
  ASSERT_TRUE(store.add(one_row(kBegin + 7min, 1), kBegin, UsageStore::kMinutesFor + 1h).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin + 7min, kBegin + 8min)->boards[0].sums.board_mj, 1);
}

// --- clocks that are set, and processes that are killed ------------------------------------------

// A daemon that is killed and started, on a machine whose clock is set by years in both directions.
class Machine {
 public:
  static constexpr Duration kKeep = 30 * kDay;

  void step() {
    switch (*rc::gen::inRange(0, 6)) {
      case 0:  // the clock is set
        wall_ = kBegin + *rc::gen::element<Duration>(463 * kDay, -463 * kDay, 7000 * kDay,
                                                     -19'999 * kDay, 1h, -1h, 61s, -61s);
        break;
      case 1:  // killed, or stopped; off for a while
        if (*rc::gen::arbitrary<bool>()) {
          RC_ASSERT(store_->end().ok());
        } else {
          note_loss();
        }
        start();
        break;
      case 2:
        RC_ASSERT(store_->tidy(kKeep).ok());
        tidied_ = total_;
        break;
      default:
        write(*rc::gen::element<Duration>(1min, 1h, kDay, 5 * kDay));
    }
  }

  // Everything that was written less than kKeep of running time ago is there, once; what is older
  // is gone when that was looked for. A quarter of an hour to which a clock came back is as young
  // as what was last written of it.
  void check() {
    std::map<WallTime, Duration> newest;
    for (const Written& one : written_) newest[one.quarter] = one.at;
    std::int64_t young = 0, not_dropped = 0;
    for (const Written& one : written_) {
      if (total_ - one.at < kKeep) young += one.mj;
      if (tidied_ - newest[one.quarter] <= kKeep + 1min) not_dropped += one.mj;
    }
    const auto usage = read_usage(folder_.file(), WallTime::min(), WallTime::max());
    std::int64_t kept = 0, billed = 0;
    UsageSavings saved;
    for (const UsageBoardRow& row : usage->boards) {
      kept += row.sums.board_mj;
      add_savings(saved, row.sums.unallocated_savings);
    }
    for (const UsageRow& row : usage->tenants) {
      billed += row.sums.total_mj();
      add_savings(saved, row.sums.savings);
    }
    RC_ASSERT(kept >= young);
    RC_ASSERT(kept <= not_dropped);
    RC_ASSERT(billed == kept);
    RC_ASSERT(saved["curves/1"] == (SavingSums{3 * kept, 4 * kept, -2 * kept}));
  }

  Machine() { start(), write(1min); }

 private:
  using Quarter = std::chrono::duration<std::int64_t, std::ratio<900>>;
  struct Written {
    Duration at{};
    WallTime quarter;
    std::int64_t mj = 0;
  };
  void start() {
    store_ = std::make_unique<UsageStore>(folder_.file());
    wall_ += *rc::gen::element<Duration>(1s, 1h, 100 * kDay);
    ran_ = {};
    RC_ASSERT(store_->begin(wall_, {"GPU-1"}).ok());
    known_until_ = wall_;
  }
  // The next run writes what this one had not added into the minutes from its last begin() or
  // add() on, which are young again by that.
  void note_loss() {
    for (const Duration after : {Duration{}, UsageStore::kMostBetween})
      written_.push_back(
          {total_, std::chrono::floor<Quarter>(usage_bucket(known_until_ + after)), 0});
  }
  void write(Duration after) {
    ran_ += after, total_ += after, wall_ += after;
    const std::int64_t mj = *rc::gen::inRange(1, 1000);
    UsageRow row{.bucket = usage_bucket(wall_), .gpu = "GPU-1", .key = "a"};
    row.sums.dynamic_mj = mj;
    row.sums.savings["curves/1"] = {mj, 2 * mj, mj};
    UsageBoardRow board{row.bucket, "GPU-1", {.board_mj = mj, .time_ms = 1000}};
    board.sums.unallocated_savings["curves/1"] = {2 * mj, 2 * mj, -3 * mj};
    RC_ASSERT(store_->add({{row}, {board}}, wall_, ran_).ok());
    written_.push_back({total_, std::chrono::floor<Quarter>(row.bucket), mj});
    known_until_ = wall_;
  }

  Folder folder_;
  std::unique_ptr<UsageStore> store_;
  WallTime wall_ = kBegin, known_until_ = kBegin;
  Duration ran_{}, total_{}, tidied_{};  // of this run; of all; of all at the last tidy()
  std::vector<Written> written_;         // in this order
};

RC_GTEST_PROP(UsageStore, NoClockAndNoKillDeletesHistory, ()) {
  Machine machine;
  const int steps = *rc::gen::inRange(1, 40);
  for (int i = 0; i < steps; ++i) {
    machine.step();
    machine.check();
  }
}

// The reproducer: started while the clock is 463 days ahead, and tidied.
TEST(UsageStore, AClockInTheFutureDeletesNothingAndIsOverWhenItIsRight) {
  const Folder folder;
  {
    UsageStore store(folder.file());
    ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
    ASSERT_TRUE(store.end().ok());
  }
  {
    UsageStore store(folder.file());
    const WallTime future = kBegin + 463 * kDay;
    ASSERT_TRUE(store.begin(future, {"GPU-1"}).ok());
    ASSERT_TRUE(store.add(one_row(future, 6), future, 1min).ok());
    ASSERT_TRUE(store.tidy(400 * kDay).ok());
    ASSERT_TRUE(store.end().ok());
  }
  UsageStore store(folder.file());
  const WallTime right = kBegin + 2min;
  ASSERT_TRUE(store.begin(right, {"GPU-1"}).ok());
  ASSERT_TRUE(store.add(one_row(right, 7), right, 1min).ok());
  ASSERT_TRUE(store.tidy(400 * kDay).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kBegin + 1h)->boards[0].sums.board_mj, 12);
  // And minutes are kept as minutes.
  EXPECT_EQ(read_usage(folder.file(), right, right + 1min)->boards[0].sums.board_mj, 7);
}

// A run that was killed so long before the next one, by the clock on the wall.
std::vector<UsageLoss> losses_after(Duration pause, bool ended) {
  const Folder folder;
  const WallTime last = kBegin + 30s;
  {
    UsageStore store(folder.file());
    CHECK(store.add(one_row(kBegin, 5), last, 30s).ok());
    if (ended) CHECK(store.end().ok());
  }
  UsageStore store(folder.file());
  CHECK(store.begin(last + pause, {"GPU-1", "GPU-2"}).ok());
  return read_usage(folder.file(), kBegin - 1h, kLong)->losses;
}

TEST(UsageStore, WhatAKilledRunHadNotAddedIsShown) {
  // Of two GPUs. Within the minute, until the next began; later, a minute at most.
  EXPECT_EQ(losses_after(10s, false), (std::vector{UsageLoss{kBegin, kBegin + 1min, 20'000}}));
  EXPECT_EQ(losses_after(53s, false), (std::vector{UsageLoss{kBegin, kBegin + 2min, 106'000}}));
  for (const Duration pause : {Duration(61s), Duration(300 * kDay), Duration(-300 * kDay)})
    EXPECT_EQ(losses_after(pause, false), (std::vector{UsageLoss{kBegin, kBegin + 2min, 120'000}}));
  for (const Duration pause : {Duration(10s), Duration(300 * kDay), Duration(-300 * kDay)})
    EXPECT_TRUE(losses_after(pause, true).empty());
}

// Also when every run is killed before its first minute is over.
TEST(UsageStore, EachOfManyKilledRunsIsShown) {
  const Folder folder;
  { ASSERT_TRUE(UsageStore(folder.file()).add(one_row(kBegin, 5), kBegin, {}).ok()); }
  for (int i = 1; i <= 4; ++i)
    ASSERT_TRUE(UsageStore(folder.file()).begin(kBegin + i * 10s, {"GPU-1"}).ok());
  const Usage usage = *read_usage(folder.file(), kBegin, kLong);
  EXPECT_EQ(usage.boards[0].sums.lost_ms, 40'000);
  EXPECT_EQ(usage.boards[0].sums.board_mj, 5);
}

// A killed run's counter showed 1000 mJ at kBegin. The next run reads `counter_mj` after `pause`,
// 1 s after its begin.
UsageBoardSums resumed(Duration pause, std::optional<std::int64_t> counter_mj, bool ended = false,
                       Watts most = Watts(1)) {
  const Folder folder;
  UsageRows rows = one_row(kBegin, 5);
  rows.counters["GPU-1"] = {1000, kBegin};
  {
    UsageStore store(folder.file());
    CHECK(store.add(rows, kBegin, {}).ok());
    if (ended) CHECK(store.end().ok());
  }
  UsageStore store(folder.file());
  CHECK(store.begin(kBegin + pause - 1s, {"GPU-1"}).ok());
  CHECK(store.resume("GPU-1", counter_mj, most, kBegin + pause).ok());
  // The second call adds nothing.
  CHECK(store.resume("GPU-1", counter_mj, most, kBegin + pause).ok());
  return read_usage(folder.file(), kBegin, kLong)->boards.at(0).sums;
}

// A board's counter counts on while no process reads it.
TEST(UsageStore, TheCounterSaysWhatABoardUsedAfterAKill) {
  const UsageBoardSums found = resumed(4s, 4500);
  EXPECT_EQ(found.board_mj, 5 + 3500);
  EXPECT_EQ(found.unallocated_mj, 3500);
  EXPECT_EQ(found.lost_ms, 4000);
  // The energy is not known: the counter went back, shows more than the board can draw, or is too
  // old.
  for (const auto& [pause, counter_mj] : {std::pair{Duration(4s), std::optional<std::int64_t>(999)},
                                          {Duration(4s), 6001},
                                          {Duration(61s), 4500},
                                          {Duration(4s), std::nullopt}})
    EXPECT_EQ(resumed(pause, counter_mj).board_mj, 5);
  EXPECT_EQ(resumed(4s, 6001, false, Watts(2)).board_mj, 5 + 5001);
  // A run that ended by itself has stored all its energy.
  EXPECT_EQ(resumed(4s, 4500, true).board_mj, 5);
  EXPECT_EQ(resumed(4s, 4500, true).lost_ms, 0);
}

TEST(UsageStore, ARunMakesNoFileBeforeThereIsSomethingToKeep) {
  const Folder folder;
  UsageStore store(folder.file());
  ASSERT_TRUE(store.begin(kBegin, {"GPU-1"}).ok());
  EXPECT_FALSE(fs::exists(folder.file()));
  ASSERT_TRUE(store.end().ok());
  EXPECT_FALSE(fs::exists(folder.file()));
}

ProgramWatts program_watts(const std::string& program, double watts) {
  return {{"alice", program}, 1.5, watts, 100};
}

TEST(UsageStore, WattsOfProgramsAreKeptByProduct) {
  const Folder folder;
  const ProgramsByProduct all{{"NVIDIA H100", {program_watts("train", 300)}},
                              {"NVIDIA H200", {program_watts("train", 400)}}};
  {
    UsageStore store(folder.file());
    EXPECT_EQ(*store.programs(), ProgramsByProduct{});
    EXPECT_FALSE(fs::exists(folder.file()));
    ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
    ASSERT_TRUE(store.keep({{"NVIDIA H100", {program_watts("train", 5)}}}).ok());
    ASSERT_TRUE(store.keep(all).ok());
  }
  UsageStore again(folder.file());
  EXPECT_EQ(*again.programs(), all);
}

// They go as the usage does, and of one product there are not ever more.
TEST(UsageStore, WattsOfProgramsGrowOld) {
  const Folder folder;
  UsageStore store(folder.file());
  ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
  ASSERT_TRUE(store.keep({{"old", {program_watts("train", 300)}}}).ok());
  std::vector<ProgramWatts> many;
  for (std::size_t i = 0; i <= UsageStore::kMostPrograms; ++i)
    many.push_back(program_watts(std::to_string(i), 300));
  run_for(store, 50h);
  ASSERT_TRUE(store.keep({{"new", many}}).ok());
  EXPECT_EQ(store.programs()->at("new").size(), UsageStore::kMostPrograms);
  EXPECT_TRUE(store.programs()->contains("old"));
  ASSERT_TRUE(store.tidy(40h).ok());
  EXPECT_FALSE(store.programs()->contains("old"));
  EXPECT_EQ(store.programs()->at("new").size(), UsageStore::kMostPrograms);
}

// --- files of other versions ---------------------------------------------------------------------

// Hours until 02:00, minutes from then on.
void write_first_version(const std::string& path) {
  SQLite::Database sqlite(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  const auto at = [](Duration after) {
    return std::chrono::duration_cast<std::chrono::seconds>((kBegin + after).time_since_epoch())
        .count();
  };
  sqlite.exec(
      "PRAGMA application_id = 1685222771;"
      "CREATE TABLE tenant (id INTEGER PRIMARY KEY, gpu TEXT NOT NULL, key TEXT NOT NULL, pid "
      "INTEGER NOT NULL, process TEXT NOT NULL, user TEXT NOT NULL, container TEXT NOT NULL, "
      "name_space TEXT NOT NULL, pod TEXT NOT NULL, job TEXT NOT NULL, instance TEXT NOT NULL, "
      "UNIQUE (gpu, key, pid, process, user, container, name_space, pod, job, instance));"
      "CREATE TABLE usage (bucket_unix_seconds INTEGER NOT NULL, tenant INTEGER NOT NULL "
      "REFERENCES tenant (id), base_mj INTEGER NOT NULL, context_mj INTEGER NOT NULL, dynamic_mj "
      "INTEGER NOT NULL, sigma_mj INTEGER NOT NULL, unsure_mj INTEGER NOT NULL, time_ms INTEGER "
      "NOT NULL, PRIMARY KEY (bucket_unix_seconds, tenant)) WITHOUT ROWID;"
      "CREATE TABLE board (bucket_unix_seconds INTEGER NOT NULL, gpu TEXT NOT NULL, board_mj "
      "INTEGER NOT NULL, unallocated_mj INTEGER NOT NULL, by_power_mj INTEGER NOT NULL, time_ms "
      "INTEGER NOT NULL, lost_ms INTEGER NOT NULL, PRIMARY KEY (bucket_unix_seconds, gpu)) WITHOUT "
      "ROWID;"
      "CREATE TABLE hours (until_unix_seconds INTEGER NOT NULL);"
      "INSERT INTO tenant VALUES (1, 'GPU-1', 'a', 2, 'train', 'alice', '', '', '', '', '')");
  sqlite.exec("INSERT INTO hours VALUES (" + std::to_string(at(2h)) + ")");
  for (const Duration after : {Duration(0h), Duration(1h), Duration(121min)}) {
    sqlite.exec("INSERT INTO usage VALUES (" + std::to_string(at(after)) + ",1,0,0,4,0,0,1000)");
    sqlite.exec("INSERT INTO board VALUES (" + std::to_string(at(after)) +
                ",'GPU-1',4,0,0,1000,0)");
  }
  sqlite.exec("PRAGMA user_version = 1");
}

// The same, as the second version had taken it over.
void write_second_version(const std::string& path) {
  write_first_version(path);
  SQLite::Database sqlite(path, SQLite::OPEN_READWRITE);
  sqlite.exec(
      "CREATE TABLE bucket (bucket_unix_seconds INTEGER PRIMARY KEY, seconds INTEGER NOT NULL, "
      "written_run_seconds INTEGER NOT NULL);"
      "INSERT INTO bucket SELECT bucket_unix_seconds, iif(bucket_unix_seconds < (SELECT "
      "until_unix_seconds FROM hours), 3600, 60), 7260 FROM board;"
      "CREATE INDEX bucket_by_age ON bucket (written_run_seconds);"
      "CREATE TABLE run (total_ms INTEGER NOT NULL, until_unix_ms INTEGER NOT NULL, open INTEGER "
      "NOT NULL);"
      "INSERT INTO run VALUES (7260000, 0, 0);"
      "DROP TABLE hours;"
      "PRAGMA user_version = 2");
}

void write_third_version(const std::string& path) {
  write_second_version(path);
  SQLite::Database sqlite(path, SQLite::OPEN_READWRITE);
  sqlite.exec(
      "CREATE TABLE usage_saving (bucket_unix_seconds INTEGER NOT NULL, tenant INTEGER NOT NULL "
      "REFERENCES tenant (id), method TEXT NOT NULL, energy_mj INTEGER NOT NULL, at_highest_mj "
      "INTEGER NOT NULL, sd_mj INTEGER NOT NULL, PRIMARY KEY (bucket_unix_seconds, tenant, "
      "method)) WITHOUT ROWID;"
      "CREATE TABLE unallocated_saving (bucket_unix_seconds INTEGER NOT NULL, gpu TEXT NOT NULL, "
      "method TEXT NOT NULL, energy_mj INTEGER NOT NULL, at_highest_mj INTEGER NOT NULL, sd_mj "
      "INTEGER NOT NULL, PRIMARY KEY (bucket_unix_seconds, gpu, method)) WITHOUT ROWID;"
      "PRAGMA user_version = 3");
}

class EarlierVersion : public testing::TestWithParam<void (*)(const std::string&)> {};
INSTANTIATE_TEST_SUITE_P(Versions, EarlierVersion,
                         testing::Values(write_first_version, write_second_version,
                                         write_third_version));

TEST_P(EarlierVersion, IsReadAndTakenOver) {
  const Folder folder;
  GetParam()(folder.file());
  const auto check = [&] {
    const Usage usage = *read_usage(folder.file(), kBegin, kLong);
    ASSERT_EQ(usage.tenants.size(), 1u);
    // Not known, which is not nothing.
    EXPECT_TRUE(usage.tenants[0].sums.savings.empty());
    EXPECT_TRUE(usage.boards[0].sums.unallocated_savings.empty());
    EXPECT_EQ(usage.tenants[0].sums.dynamic_mj, 12);
    EXPECT_EQ(usage.tenants[0].sums.prior_mj, 0);
    EXPECT_EQ(usage.boards[0].sums.board_mj, 12);
    EXPECT_EQ(usage.first, kBegin);
    EXPECT_EQ(usage.last, kBegin + 122min);
    EXPECT_EQ(read_usage(folder.file(), kBegin, kBegin + 2h)->last, kBegin + 2h);
  };
  check();
  std::vector<Error> told;
  UsageStore store(folder.file(), [&](const Error& error) { told.push_back(error); });
  ASSERT_TRUE(store.begin(kBegin + 3h, {"GPU-1"}).ok());
  ASSERT_TRUE(store.tidy(400 * kDay).ok());
  EXPECT_TRUE(store.programs()->empty());
  ASSERT_TRUE(store.keep({{"NVIDIA H200", {program_watts("train", 400)}}}).ok());
  EXPECT_EQ(store.programs()->size(), 1u);
  EXPECT_TRUE(told.empty());
  check();
  // What is added from here on has a figure, also in a minute that had none.
  ASSERT_TRUE(store.add(one_row(kBegin + 121min, 6), kBegin + 3h, 1min).ok());
  const Bill bill = make_bill(*read_usage(folder.file(), kBegin, kLong), BillBy::user);
  EXPECT_EQ(bill.boards.board_mj, 18);
  EXPECT_EQ(bill.lines[0].sums.prior_mj, 6);
  EXPECT_EQ(bill.savings, (Savings{{"curves/1", {6, 12, 1}}}));
}

TEST(UsageStore, AFileOfANewerVersionIsLeftAlone) {
  const Folder folder;
  {
    UsageStore store(folder.file());
    ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
  }
  SQLite::Database(folder.file(), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 1000");
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong).error().code, Errc::bad_data);
  UsageStore store(folder.file());
  EXPECT_EQ(add(store, one_row(kBegin, 5)).error().code, Errc::bad_data);
  EXPECT_TRUE(folder.asides().empty());
}

// A figure that changed on disk is reported, also after minutes have become quarters.
TEST(UsageStore, AFigureThatWasChangedIsReported) {
  for (const char* change :
       {"UPDATE usage SET dynamic_mj = dynamic_mj + 8", "UPDATE board SET lost_ms = lost_ms + 1024",
        "UPDATE usage SET sigma_mj = sigma_mj + 1"}) {
    const Folder folder;
    UsageStore store(folder.file());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(add(store, one_row(kBegin + i * 1min, 5)).ok());
    EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->broken_rows, 0);
    SQLite::Database(folder.file(), SQLite::OPEN_READWRITE)
        .exec(std::string(change) +
              " WHERE bucket_unix_seconds = (SELECT min(bucket_unix_seconds) "
              "FROM board)");
    EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->broken_rows, 1) << change;
    ASSERT_TRUE(store.add({}, kBegin + 30 * kDay, 30 * kDay).ok());
    ASSERT_TRUE(store.tidy(400 * kDay).ok());
    EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->broken_rows, 1) << change;
  }
}

TEST(UsageStore, ABrokenFileIsSetAside) {
  const Folder folder;
  ASSERT_TRUE(write_file_atomically(folder.file(), "rubbish, and more of it").ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong).error().code, Errc::bad_data);
  std::vector<Error> told;
  UsageStore store(folder.file(), [&](const Error& error) { told.push_back(error); });
  ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
  ASSERT_EQ(told.size(), 1u);
  ASSERT_EQ(folder.asides().size(), 1u);
  EXPECT_EQ(*read_file(folder.asides()[0]), "rubbish, and more of it");
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->boards[0].sums.board_mj, 5);
}

TEST(UsageStore, AFileThatWasTakenAwayIsMadeAgain) {
  const Folder folder;
  UsageStore store(folder.file());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong).error().code, Errc::not_found);
  ASSERT_TRUE(add(store, one_row(kBegin, 5)).ok());
  fs::remove(folder.file());
  ASSERT_TRUE(add(store, one_row(kBegin, 6)).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->boards[0].sums.board_mj, 6);
}

TEST(UsageStore, AKilledProcessLosesNothingThatWasAdded) {
  const Folder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    UsageStore store(folder.file());
    if (add(store, one_row(kBegin, 5)).ok()) (void)::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  UsageStore store(folder.file());
  ASSERT_TRUE(add(store, one_row(kBegin, 6)).ok());
  const Usage usage = *read_usage(folder.file(), kBegin, kLong);
  EXPECT_EQ(usage.boards[0].sums.board_mj, 11);
  EXPECT_EQ(usage.tenants[0].sums.savings, (Savings{{"curves/1", {11, 22, 2}}}));
}

}  // namespace
}  // namespace derate
