#include "store/tune_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>

#include "base/clock.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TuneTrialRow some_trial(std::int64_t id, const std::string& job = "bert") {
  TuneTrialRow out{.id = id, .job = job, .recurrence = 3, .batch_size = 32};
  out.state = "running";
  out.epochs = 1.5;
  out.cost = 0.1;
  out.stop_cost = 1e300;
  out.token = "secret";
  out.gpus = "GPU-1,GPU-2";
  out.uid = 4'294'967'295u;
  out.began = WallTime{1h};
  out.marks = {{1, 0.5}, {2, -0.25}};
  return out;
}

const TuneJobRow kBert{"bert", 1000, R"({"name":"bert"})", WallTime{5s}};

Result<void> put(TuneStore& store, const TuneJobRow& row) { return store.write({.jobs = {{row}}}); }
Result<void> put(TuneStore& store, const TuneTrialRow& row) {
  return store.write({.trials = {row}});
}
Result<void> remove_job(TuneStore& store, const std::string& name) {
  return store.write({.removed = {name}});
}

TEST(TuneStore, KeepsWhatItWasGiven) {
  const Folder folder;
  TuneRows wanted{{kBert}, {some_trial(1), some_trial(7)}, 7};
  wanted.trials[1].exploring = true;
  wanted.trials[1].metric = 0.0;
  wanted.trials[1].ended = WallTime{2h};
  {
    TuneStore store(folder.file());
    ASSERT_TRUE(put(store, kBert).ok());
    for (const TuneTrialRow& row : wanted.trials) ASSERT_TRUE(put(store, row).ok());
  }
  TuneStore store(folder.file());
  EXPECT_EQ(*store.load(), wanted);
  EXPECT_EQ(fs::status(folder.file()).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

RC_GTEST_PROP(TuneStore, ATrialIsAsItWasLastPut, ()) {
  const Folder folder;
  TuneStore store(folder.file());
  RC_ASSERT(put(store, kBert).ok());
  TuneTrialRow row = some_trial(1);
  row.marks.clear();
  const int puts = *rc::gen::inRange(1, 10);
  for (int i = 0; i < puts; ++i) {
    // As a registry does: a mark comes, or the last is renewed.
    if (!row.marks.empty() && *rc::gen::arbitrary<bool>())
      row.marks.back().metric += 1;
    else if (*rc::gen::arbitrary<bool>())
      row.marks.push_back({i * 1.0, i / 3.0});
    row.epochs = i;
    row.verdict = *rc::gen::element<std::string>("", "reached");
    row.steps = *rc::gen::element<std::optional<double>>(std::nullopt, 0.0, 1e18);
    RC_ASSERT(put(store, row).ok());
    RC_ASSERT(store.load()->trials == std::vector{row});
  }
}

TEST(TuneStore, AJobGoesWithItsTrialsAndTheirIdsStayGone) {
  const Folder folder;
  TuneStore store(folder.file());
  ASSERT_TRUE(put(store, kBert).ok());
  ASSERT_TRUE(put(store, TuneJobRow{"vgg", 1, "{}", {}}).ok());
  ASSERT_TRUE(put(store, some_trial(1, "vgg")).ok());
  ASSERT_TRUE(put(store, some_trial(9)).ok());
  ASSERT_TRUE(remove_job(store, "bert").ok());
  const TuneRows rows = *store.load();
  ASSERT_EQ(rows.jobs.size(), 1u);
  ASSERT_EQ(rows.trials.size(), 1u);
  EXPECT_EQ(rows.trials[0].marks.size(), 2u);
  EXPECT_EQ(rows.last_trial, 9);
  EXPECT_TRUE(put(store, some_trial(10)).ok());  // of no job: left out
  EXPECT_EQ(store.load()->trials, rows.trials);
}

TEST(TuneStore, AProfileTakesThePlaceOfTheOneBefore) {
  const Folder folder;
  TuneStore store(folder.file());
  const TuneProfileKey key{"V100-SXM2", "bert", "power-limit", 32};
  TuneProfileKey other = key;
  other.batch_size = 64;
  EXPECT_EQ(*store.bytes_kept(), TuneBytes{});
  EXPECT_FALSE(fs::exists(folder.file()));
  const TuneProfileRow first{key, {{200, 1, 2}}, {}}, second{other, {{200, 1, 2}}, WallTime{1s}},
      third{key, {{150, 0.9, 140}, {250, 1, 220}}, WallTime{2s}};
  ASSERT_TRUE(store.write({.profiles = {first, second}}).ok());
  EXPECT_EQ(store.load()->profiles, (std::vector{first, second}));
  ASSERT_TRUE(store.write({.profiles = {third}}).ok());
  EXPECT_EQ(store.load()->profiles, (std::vector{third, second}));
}

// --- what a user may keep, and how large that is -------------------------------------------------

std::uintmax_t size_of(const std::string& path) {
  std::error_code failed;
  const auto out = fs::file_size(path, failed);
  return failed ? 0 : out;
}

// Fifty trials that are begun and ended, from `id` on, at once.
Result<void> write_fifty(TuneStore& store, std::int64_t id) {
  TuneTrialRow row = some_trial(0);
  row.uid = 1000;
  row.why = std::string(3000, 'w');
  TuneChanges changes;
  for (row.id = id; row.id < id + 50; ++row.id) {
    row.ended.reset();
    changes.trials.push_back(row);
    row.ended = WallTime{2h};
    changes.trials.push_back(row);
  }
  return store.write(changes);
}

// Trials are begun and ended for as long as there is room: the files stay as small as is promised.
TEST(TuneStore, AFloodOfTrialsEndsAtTheUsersRoom) {
  const Folder folder;
  TuneStore store(folder.file());
  ASSERT_TRUE(put(store, kBert).ok());
  ASSERT_TRUE(put(store, TuneJobRow{"vgg", 1001, "{}", {}}).ok());
  std::uintmax_t longest = 0;
  std::int64_t id = 1;
  SystemClock clock;
  int refused = 0;
  while (id < 20'000 && check_room(*store.bytes_kept(), 1000).ok()) {
    const auto written = write_fifty(store, id);
    if (written.ok()) {
      id += 50;
    } else {
      // Its log is being cut for a moment; who writes tries again.
      ASSERT_EQ(written.error().code, Errc::busy) << written.error().message;
      ASSERT_LT(++refused, 2000);
      clock.sleep_until(clock.now() + 1ms);
    }
    longest = std::max(longest, size_of(folder.file() + "-wal"));
  }
  EXPECT_LT(id, 6000);
  EXPECT_EQ(check_room(*store.bytes_kept(), 1000).error().code, Errc::busy);
  EXPECT_NE(check_room(*store.bytes_kept(), 1000).error().message.find("allowed are 16"),
            std::string::npos);
  EXPECT_TRUE(check_room(*store.bytes_kept(), 1001).ok());
  EXPECT_TRUE(check_room({{0, 1 << 30}}, 0).ok());
  EXPECT_LT(longest, 66u << 20);
  EXPECT_LT(size_of(folder.file()), 3u * TuneStore::kMostBytesOfUser / 2);
  ASSERT_TRUE(remove_job(store, "bert").ok());
  EXPECT_TRUE(check_room(*store.bytes_kept(), 1000).ok());
}

// Whatever comes and goes: what each user keeps is what can be counted, and a file that is opened
// again knows it.
RC_GTEST_PROP(TuneStore, WhatIsKeptIsCounted, ()) {
  const Folder folder;
  auto store = std::make_unique<TuneStore>(folder.file());
  std::map<std::int64_t, TuneTrialRow> trials;
  const int steps = *rc::gen::inRange(1, 20);
  for (int i = 0; i < steps; ++i) {
    const std::string job = *rc::gen::element<std::string>("bert", "vgg");
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        RC_ASSERT(remove_job(*store, job).ok());
        std::erase_if(trials, [&](const auto& each) { return each.second.job == job; });
        break;
      case 1:
        store = std::make_unique<TuneStore>(folder.file());
        break;
      default: {
        RC_ASSERT(put(*store, TuneJobRow{job, 1000, "{}", {}}).ok());
        TuneTrialRow row = some_trial(*rc::gen::inRange(1, 6), job);
        if (trials.contains(row.id)) row.job = trials.at(row.id).job;
        row.uid = 1000;
        row.ended = WallTime{2h};  // its marks may be fewer than they were
        row.marks.assign(*rc::gen::inRange<std::size_t>(0, 5), {1, 2});
        RC_ASSERT(put(*store, TuneJobRow{row.job, 1000, "{}", {}}).ok());
        RC_ASSERT(put(*store, row).ok());
        trials[row.id] = row;
      }
    }
  }
  const TuneRows rows = *store->load();
  RC_ASSERT(rows.trials.size() == trials.size());
  for (const TuneTrialRow& row : rows.trials) RC_ASSERT(row == trials.at(row.id));
  if (!fs::exists(folder.file())) return;  // nothing was ever kept
  SQLite::Database sqlite(folder.file(), SQLite::OPEN_READWRITE);
  RC_ASSERT(sqlite.execAndGet("SELECT ifnull(sum(bytes), 0) FROM kept").getInt64() ==
            sqlite
                .execAndGet("SELECT (SELECT ifnull(sum(bytes), 0) FROM trial) + (SELECT "
                            "ifnull(sum(256 + length(spec)), 0) FROM job)")
                .getInt64());
}

TEST(TuneStore, WhatIsWrittenTogetherIsAllThereOrNothing) {
  const Folder folder;
  TuneStore store(folder.file());
  // One is nobody's: left out, and nothing else with it.
  ASSERT_TRUE(
      store.write({.jobs = {{kBert}}, .trials = {some_trial(1), some_trial(2, "nobody's")}}).ok());
  EXPECT_EQ(store.load()->trials.size(), 1u);
  SQLite::Database other(folder.file(), SQLite::OPEN_READWRITE);
  other.exec("BEGIN IMMEDIATE");  // as an operator's sqlite3
  const TuneChanges more{.removed = {"bert"}, .trials = {some_trial(3)}};
  EXPECT_EQ(store.write(more).error().code, Errc::busy);
  other.exec("COMMIT");
  EXPECT_EQ(store.load()->trials.size(), 1u);
}

TEST(TuneStore, ATrialOfAJobThatGoesAwayInTheSameStroke) {
  const Folder folder;
  TuneStore store(folder.file());
  ASSERT_TRUE(put(store, kBert).ok());
  for (int id = 1; id <= 3; ++id) ASSERT_TRUE(put(store, some_trial(id)).ok());
  ASSERT_TRUE(store.write({.jobs = {{kBert, {1, 3}}}}).ok());
  const TuneRows rows = *store.load();
  ASSERT_EQ(rows.trials.size(), 1u);
  EXPECT_EQ(rows.trials[0].id, 2);
  EXPECT_EQ(rows.last_trial, 3);
}

TEST(TuneStore, ABrokenFileIsSetAside) {
  const Folder folder;
  ASSERT_TRUE(write_file_atomically(folder.file(), "rubbish, and more of it").ok());
  std::vector<Error> told;
  TuneStore store(folder.file(), [&](const Error& error) { told.push_back(error); });
  EXPECT_EQ(*store.load(), TuneRows{});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].code, Errc::bad_data);
  ASSERT_EQ(folder.asides().size(), 1u);
  EXPECT_EQ(*read_file(folder.asides()[0]), "rubbish, and more of it");
  EXPECT_TRUE(put(store, kBert).ok());
}

TEST(TuneStore, AFileThatWasDeletedIsBegunAnewAndTold) {
  const Folder folder;
  TuneStore store(folder.file());
  ASSERT_TRUE(put(store, kBert).ok());
  const int before = store.generation();
  ASSERT_TRUE(put(store, some_trial(1)).ok());
  EXPECT_EQ(store.generation(), before);
  fs::remove(folder.file());
  ASSERT_TRUE(put(store, kBert).ok());
  EXPECT_GT(store.generation(), before);
}

TEST(TuneStore, AKilledProcessLosesNothing) {
  const Folder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    TuneStore store(folder.file());
    const bool good = put(store, kBert).ok() && put(store, some_trial(1)).ok();
    if (good) (void)::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  TuneStore store(folder.file());
  const TuneRows rows = *store.load();
  ASSERT_EQ(rows.trials.size(), 1u);
  EXPECT_EQ(rows.trials[0], some_trial(1));
}

}  // namespace
}  // namespace derate
