#include "store/usage_store.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/check.h"
#include "base/text.h"
#include "store/usage_bill.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kDay = 24h;
const WallTime kBegin{20'000 * 24h};
const WallTime kLong = kBegin + 1000 * kDay;

class Folder {
 public:
  Folder() {
    std::string made = (fs::temp_directory_path() / "derate-XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr);
    path_ = made;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string file() const { return path_ + "/usage.db"; }

 private:
  std::string path_;
};

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
              60'000};
  return out;
}

// A minute of a GPU that adds up.
UsageRows any_minute(WallTime bucket) {
  UsageRows out;
  for (const char* gpu : {"GPU-1", "GPU-2"}) {
    UsageBoardRow board{bucket, gpu, {.unallocated_mj = *rc::gen::inRange(0, 1000)}};
    board.sums.time_ms = 60'000;
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

// By whatever it is billed, before and after minutes became hours.
RC_GTEST_PROP(UsageStore, EveryBillAddsUpToTheBoards, ()) {
  const Folder folder;
  UsageStore store(folder.file());
  std::int64_t board = 0;
  const int minutes = *rc::gen::inRange(1, 12);
  for (int i = 0; i < minutes; ++i) {
    const UsageRows rows = any_minute(kBegin + *rc::gen::inRange(0, 20) * 10min);
    RC_ASSERT(store.add(rows).ok());
    for (const UsageBoardRow& row : rows.boards) board += row.sums.board_mj;
    if (*rc::gen::inRange(0, 4) == 0)
      RC_ASSERT(store.tidy(kBegin + 7 * kDay + *rc::gen::inRange(0, 4) * 1h, 400 * kDay).ok());
  }
  const Usage usage = *read_usage(folder.file(), kBegin, kLong);
  for (const BillBy by : {BillBy::user, BillBy::job, BillBy::pod, BillBy::container,
                          BillBy::instance, BillBy::process}) {
    const Bill bill = make_bill(usage, by);
    RC_ASSERT(bill.boards.board_mj == board);
    RC_ASSERT(sum_of(bill) == board);
  }
}

// Cut anywhere on an hour, the parts of a time are the whole.
RC_GTEST_PROP(UsageStore, PartsOfATimeAreTheWhole, ()) {
  const Folder folder;
  UsageStore store(folder.file());
  for (int i = 0; i < 6; ++i)
    RC_ASSERT(store.add(any_minute(kBegin + *rc::gen::inRange(0, 240) * 1min)).ok());
  if (*rc::gen::arbitrary<bool>()) RC_ASSERT(store.tidy(kBegin + 7 * kDay + 2h, 400 * kDay).ok());
  const WallTime cut = kBegin + *rc::gen::inRange(0, 5) * 1h;
  const auto board = [&](WallTime from, WallTime to) {
    return make_bill(*read_usage(folder.file(), from, to), BillBy::user).boards;
  };
  UsageBoardSums parts = board(kBegin, cut);
  parts.add(board(cut, kLong));
  RC_ASSERT(parts == board(kBegin, kLong));
}

UsageRows one_row(WallTime bucket, std::int64_t mj, const std::string& user = "alice") {
  UsageRow row{.bucket = bucket, .gpu = "GPU-1", .key = "pid:1:2"};
  row.labels = {.pid = 2, .process = "train", .user = user};
  row.sums.dynamic_mj = mj;
  return {{row}, {{bucket, "GPU-1", {.board_mj = mj, .time_ms = 1000}}}};
}

TEST(UsageStore, AddsToWhatAMinuteHas) {
  const Folder folder;
  UsageStore store(folder.file());
  ASSERT_TRUE(store.add(one_row(kBegin, 5)).ok());
  ASSERT_TRUE(store.add(one_row(kBegin, 6)).ok());
  ASSERT_TRUE(store.add(one_row(kBegin + 1min, 7)).ok());
  const Usage usage = *read_usage(folder.file(), kBegin, kLong);
  ASSERT_EQ(usage.tenants.size(), 1u);
  EXPECT_EQ(usage.tenants[0].labels, one_row({}, 0).tenants[0].labels);
  EXPECT_EQ(usage.tenants[0].sums.dynamic_mj, 18);
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
  ASSERT_TRUE(store.add(one_row(kBegin, 5)).ok());
  ASSERT_TRUE(store.add(one_row(kBegin, 6, "")).ok());
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

TEST(UsageStore, WhatIsTooOldGoesAndItsTenantsWithIt) {
  const Folder folder;
  UsageStore store(folder.file());
  ASSERT_TRUE(store.add(one_row(kBegin, 5, "bob")).ok());
  ASSERT_TRUE(store.add(one_row(kBegin + 10 * kDay, 6)).ok());
  ASSERT_TRUE(store.tidy(kBegin + 11 * kDay, 10 * kDay).ok());
  const Usage usage = *read_usage(folder.file(), WallTime{}, kLong);
  ASSERT_EQ(usage.tenants.size(), 1u);
  EXPECT_EQ(usage.tenants[0].labels.user, "alice");
  EXPECT_EQ(usage.boards[0].sums.board_mj, 6);
}

TEST(UsageStore, HoursKeepWhatMinutesHad) {
  const Folder folder;
  UsageStore store(folder.file());
  for (const auto minute : {1min, 59min, 61min})
    ASSERT_TRUE(store.add(one_row(kBegin + minute, 1)).ok());
  ASSERT_TRUE(store.tidy(kBegin + UsageStore::kMinutesFor + 1h, 400 * kDay).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kBegin + 1min)->boards[0].sums.board_mj, 2);
  EXPECT_EQ(read_usage(folder.file(), kBegin + 61min, kLong)->boards[0].sums.board_mj, 1);
  // What comes late joins its hour.
  ASSERT_TRUE(store.add(one_row(kBegin + 30min, 1)).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kBegin + 1min)->boards[0].sums.board_mj, 3);
}

TEST(UsageStore, ABrokenFileIsSetAside) {
  const Folder folder;
  ASSERT_TRUE(write_file_atomically(folder.file(), "rubbish, and more of it").ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong).error().code, Errc::bad_data);
  std::vector<Error> told;
  UsageStore store(folder.file(), [&](const Error& error) { told.push_back(error); });
  ASSERT_TRUE(store.add(one_row(kBegin, 5)).ok());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(*read_file(folder.file() + ".aside"), "rubbish, and more of it");
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->boards[0].sums.board_mj, 5);
}

TEST(UsageStore, AFileThatWasTakenAwayIsMadeAgain) {
  const Folder folder;
  UsageStore store(folder.file());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong).error().code, Errc::not_found);
  ASSERT_TRUE(store.add(one_row(kBegin, 5)).ok());
  fs::remove(folder.file());
  ASSERT_TRUE(store.add(one_row(kBegin, 6)).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->boards[0].sums.board_mj, 6);
}

TEST(UsageStore, AKilledProcessLosesNothingThatWasAdded) {
  const Folder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    UsageStore store(folder.file());
    if (store.add(one_row(kBegin, 5)).ok()) (void)::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  UsageStore store(folder.file());
  ASSERT_TRUE(store.add(one_row(kBegin, 6)).ok());
  EXPECT_EQ(read_usage(folder.file(), kBegin, kLong)->boards[0].sums.board_mj, 11);
}

}  // namespace
}  // namespace derate
