#include "store/sqlite_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "store/history/history_store.h"
#include "store/lab_store.h"
#include "store/model_cache.h"
#include "store/tune_store.h"
#include "store/usage_store.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using Use = SqliteFile::Use;

constexpr const char* kMigrations[] = {"CREATE TABLE note (text BLOB NOT NULL)"};
constexpr const char* kReads[] = {"SELECT text FROM note"};
constexpr SqliteSchema kSchema{0x64727474, "notes", kMigrations, kReads};

struct Notes {
  std::vector<Error> told;
  SqliteFile file;

  explicit Notes(const std::string& path, SqliteFile::CutLog cut = SqliteFile::CutLog::at_once)
      : file({.path = path,
              .schema = kSchema,
              .busy_milliseconds = 3,
              .cut_log = cut,
              .on_error = [this](const Error& error) { told.push_back(error); }}) {}

  Result<void> add(const std::string& text) {
    return file.attempt(Use::write, [&](SQLite::Database& sqlite) {
      SQLite::Statement row(sqlite, "INSERT INTO note VALUES (?)");
      row.bind(1, text);
      row.exec();
    });
  }
  int count() {
    const auto out = file.attempt(Use::read, [](SQLite::Database& sqlite) {
      return sqlite.execAndGet("SELECT count(*) FROM note").getInt();
    });
    return out.ok() ? *out : -1;
  }
};

// A process that dies while it reads the file.
void crash_of(const std::string& path) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Notes notes(path);
    (void)notes.file.attempt(Use::read, [](SQLite::Database&) { ::_exit(9); });
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 9);
}

int notes_in(const std::string& path) {
  return SQLite::Database(path, SQLite::OPEN_READWRITE)
      .execAndGet("SELECT count(*) FROM note")
      .getInt();
}

// --- openings that came to no end ----------------------------------------------------------------

// Whatever is killed and opened, in any order: no note is lost, and only two crashes in a row take
// the file away from where it was.
RC_GTEST_PROP(SqliteFile, OnlyTwoCrashesInARowSetAFileAside, ()) {
  const Folder folder;
  int here = 0, all = 0, crashes = 0;
  std::size_t asides = 0;
  const int steps = *rc::gen::inRange(1, 8);
  for (int i = 0; i < steps; ++i) {
    if (*rc::gen::arbitrary<bool>()) {
      crash_of(folder.file());
      // The crash of a process that found two before it is the first of a new file.
      if (crashes == SqliteFile::kMostCrashes) crashes = 0, here = 0, ++asides;
      ++crashes;
      continue;
    }
    Notes notes(folder.file());
    if (crashes == SqliteFile::kMostCrashes) here = 0, ++asides;
    RC_ASSERT(notes.told.empty());
    RC_ASSERT(notes.count() == here);
    RC_ASSERT(notes.told.size() == (crashes == SqliteFile::kMostCrashes ? 1u : 0u));
    crashes = 0;
    RC_ASSERT(!fs::exists(folder.file() + ".opening"));
    RC_ASSERT(notes.add("a note").ok());
    ++here, ++all;
  }
  const auto set_aside = folder.asides();
  RC_ASSERT(set_aside.size() == asides);
  int found = fs::exists(folder.file()) ? notes_in(folder.file()) : 0;
  for (const std::string& path : set_aside) found += notes_in(path);
  RC_ASSERT(found == all);
}

TEST(SqliteFile, WhatIsSetAsideBringsItsLogAndIsTold) {
  const Folder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // ends without closing the file: the note is in the log alone
    Notes notes(folder.file());
    ::_exit(notes.add("kept").ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (int i = 0; i < SqliteFile::kMostCrashes; ++i) crash_of(folder.file());
  Notes notes(folder.file());
  EXPECT_EQ(notes.count(), 0);
  ASSERT_EQ(notes.told.size(), 1u);
  EXPECT_EQ(notes.told[0].code, Errc::bad_data);
  const auto asides = folder.asides();
  ASSERT_EQ(asides.size(), 1u);
  EXPECT_NE(notes.told[0].message.find(asides[0]), std::string::npos) << notes.told[0].message;
  EXPECT_EQ(notes_in(asides[0]), 1);
}

// Of programs that open one file at the same time none takes another for a crash.
TEST(SqliteFile, WhoOpensItAtTheSameTimeIsNoCrash) {
  const Folder folder;
  { EXPECT_TRUE(Notes(folder.file()).add("one").ok()); }
  OpeningMark other(folder.file());
  for (int i = 0; i < 5; ++i) {
    OpeningMark also(folder.file());  // as long as the other holds it
    EXPECT_EQ(also.crashes(), 0);
    Notes notes(folder.file());
    EXPECT_EQ(notes.count(), 1);
    EXPECT_TRUE(notes.told.empty());
  }
  other.end();
  EXPECT_TRUE(folder.asides().empty());
}

// What breaks a second time does not take the place of what was set aside before.
TEST(SqliteFile, EachBrokenFileIsKept) {
  const Folder folder;
  for (const char* text : {"broken", "broken again"}) {
    ASSERT_TRUE(write_file_atomically(folder.file(), text).ok());
    Notes notes(folder.file());
    EXPECT_TRUE(notes.add("one").ok());
    ASSERT_EQ(notes.told.size(), 1u);
    EXPECT_NE(notes.told[0].message.find("set aside as '" + folder.asides().back() + "'"),
              std::string::npos)
        << notes.told[0].message;
  }
  const auto asides = folder.asides();
  ASSERT_EQ(asides.size(), 2u);
  EXPECT_EQ(*read_file(asides[0]), "broken");
  EXPECT_EQ(*read_file(asides[1]), "broken again");
}

TEST(SqliteFile, CrashesWithoutEndLeaveSoManyFilesAndTheFirstAmongThem) {
  const Folder folder;
  { EXPECT_TRUE(Notes(folder.file()).add("the one that matters").ok()); }
  for (int i = 0; i < 30; ++i) crash_of(folder.file());
  const auto asides = folder.asides();
  EXPECT_LE(asides.size(), SqliteFile::kMostAsides);
  int found = 0;
  for (const std::string& path : asides) found += notes_in(path);
  EXPECT_EQ(found, 1);
}

TEST(SqliteFile, LookingMakesAndChangesNothing) {
  const Folder folder;
  { EXPECT_TRUE(Notes(folder.file()).add("one").ok()); }
  for (int i = 0; i < 3; ++i) crash_of(folder.file());
  const auto mark = *read_file(folder.file() + ".opening");
  Notes notes(folder.file());
  (void)notes.file.attempt(Use::look, [](SQLite::Database&) { return 0; });
  EXPECT_EQ(*read_file(folder.file() + ".opening"), mark);
}

// --- the log -------------------------------------------------------------------------------------

const std::string kPage(16 << 10, 'x');

TEST(SqliteFile, ALogIsCut) {
  const Folder folder;
  Notes notes(folder.file());
  std::uintmax_t longest = 0;
  for (int i = 0; i < 2000; ++i) {  // 32 MB
    ASSERT_TRUE(notes.add(kPage).ok());
    longest = std::max(longest, log_bytes(folder.file()));
  }
  EXPECT_LT(longest, kMostLogBytes + (1u << 20));
  EXPECT_EQ(notes.count(), 2000);
}

// While a thread of its own moves the log, writers go on; beyond the last bound they wait.
TEST(SqliteFile, ALogIsCutBesideTheWriter) {
  const Folder folder;
  Notes notes(folder.file(), SqliteFile::CutLog::firmly);
  SystemClock clock;
  std::uintmax_t longest = 0;
  int kept = 0;
  for (int i = 0; i < 6000; ++i) {  // 96 MB, as fast as it can
    const auto done = notes.add(kPage);
    EXPECT_TRUE(done.ok() || done.error().code == Errc::busy) << done.error().message;
    kept += done.ok() ? 1 : 0;
    longest = std::max(longest, log_bytes(folder.file()));
  }
  EXPECT_LT(longest, kMostLogBytesWithReader + (1u << 20));
  EXPECT_EQ(notes.count(), kept);
  // At a pace that a disk can follow it is short again.
  for (int i = 0; i < 300 && log_bytes(folder.file()) > 6 * kMostLogBytes; ++i) {
    (void)notes.add(kPage);
    clock.sleep_until(clock.now() + std::chrono::milliseconds(50));
  }
  EXPECT_LE(log_bytes(folder.file()), 6 * kMostLogBytes);
}

// An operator's sqlite3 that was left in a transaction: no log can be cut while it is there.
TEST(SqliteFile, AReaderThatStaysStopsTheWriterAndNotTheDisk) {
  const Folder folder;
  Notes notes(folder.file());
  ASSERT_TRUE(notes.add("first").ok());
  int kept = 1;
  {
    SQLite::Database reader(folder.file(), SQLite::OPEN_READONLY);
    reader.exec("BEGIN");
    EXPECT_EQ(reader.execAndGet("SELECT count(*) FROM note").getInt(), 1);
    Result<void> done;
    for (int i = 0; i < 6000 && done.ok(); ++i) {
      done = notes.add(kPage);
      kept += done.ok() ? 1 : 0;
    }
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, Errc::busy);
    EXPECT_NE(done.error().message.find("another program"), std::string::npos);
    EXPECT_LT(log_bytes(folder.file()), kMostLogBytesWithReader + (1u << 20));
    EXPECT_EQ(notes.count(), kept);  // reading goes on
  }
  EXPECT_TRUE(notes.add(kPage).ok());
  EXPECT_LE(log_bytes(folder.file()), kMostLogBytes);
  EXPECT_EQ(notes.count(), kept + 1);
}

// --- the files of every store --------------------------------------------------------------------

PhaseModel plain_model() {
  PhaseModel out;
  out.chip = "H200";
  out.signals = {"sm"};
  out.highest = Megahertz(1980);
  out.progress = out.with_power = out.power_curve = {{0.5}, {0.25}};
  return out;
}

// Opens the file as its program does, reads it, and writes to it.
struct Store {
  const char* name;
  Result<void> (*use)(const std::string& path, std::vector<Error>& told);
};
std::ostream& operator<<(std::ostream& out, const Store& store) { return out << store.name; }

Result<void> use_models(const std::string& path, std::vector<Error>& told) {
  FakeClock clock;
  clock.step_wall(std::chrono::hours(24 * 20'000));
  Result<void> last;
  SqliteModelCache cache(path, clock, [&](const Error& error) {
    told.push_back(error);
    last = error;
  });
  (void)cache.recall("H200");
  if (cache.keep(plain_model()) != 0) return {};
  return last;
}

Result<void> use_jobs(const std::string& path, std::vector<Error>& told) {
  TuneStore store(path, [&](const Error& error) { told.push_back(error); });
  TRY(store.load());
  TRY(store.write({.jobs = {{{"bert", 1000, "{}", {}}}}}));
  const auto id = TRY(store.load()).last_trial + 1;
  const TuneTrialRow trial{.id = id, .job = "bert", .state = "lost", .marks = {{1, 2}}};
  TRY(store.write({.trials = {trial}}));
  TRY(store.bytes_kept());
  return store.write({.profiles = {{{"H200", "bert", "clock", 8}, {{1, 2, 3}}, {}}}});
}

Result<void> use_usage(const std::string& path, std::vector<Error>& told) {
  const WallTime now{std::chrono::hours(24 * 20'000)};
  (void)read_usage(path, WallTime{}, now + std::chrono::hours(1)).ok();
  UsageStore store(path, [&](const Error& error) { told.push_back(error); });
  UsageRow row{.bucket = now, .gpu = "GPU-1", .key = "a"};
  row.sums.dynamic_mj = 5;
  TRY(store.begin(now, {"GPU-1"}));
  TRY(store.add({{row}, {{now, "GPU-1", {.board_mj = 5}}}}, now, std::chrono::minutes(1)));
  TRY(store.tidy(std::chrono::hours(24)));
  return store.end();
}

Result<void> use_history(const std::string& path, std::vector<Error>& told) {
  const WallTime now{std::chrono::hours(24 * 20'000)};
  (void)read_history(path, {.from = WallTime{}, .to = now + std::chrono::hours(1)}).ok();
  HistoryStore store(path, {}, [&](const Error& error) { told.push_back(error); });
  HistoryRows rows;
  for (int i = 0; i < 70; ++i)
    rows.seconds.push_back({now + std::chrono::seconds(i), {{{.gpu = "GPU-1"}, {}}}});
  TRY(store.add(rows, std::chrono::seconds(70)));
  TRY(store.last_event());
  TRY(store.tidy(std::chrono::hours(24)));
  return {};
}

Result<void> use_results(const std::string& path, std::vector<Error>&) {
  LabStore store = TRY(LabStore::create(path));
  TRY(store.set_note("gpu", "H200"));
  TRY(store.sessions());
  TRY(store.jobs());
  TRY(TRY(LabStore::open(path)).note("gpu"));
  return {};
}

constexpr Store kDaemons[] = {{"models.db", use_models},
                              {"tune.db", use_jobs},
                              {"usage.db", use_usage},
                              {"history.db", use_history}};
constexpr Store kAll[] = {{"models.db", use_models},
                          {"tune.db", use_jobs},
                          {"usage.db", use_usage},
                          {"history.db", use_history},
                          {"results.lab", use_results}};

class EveryStore : public ::testing::TestWithParam<Store> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(use().ok());
    ASSERT_TRUE(told_.empty());
    whole_ = *read_file(path());
  }
  std::string path() const { return folder_.file(GetParam().name); }
  Result<void> use() { return GetParam().use(path(), told_); }
  // In place of what there is, without a log.
  void place(const std::string& bytes) {
    for (const auto& entry : fs::directory_iterator(fs::path(path()).parent_path()))
      fs::remove(entry.path());
    ASSERT_TRUE(write_file_atomically(path(), bytes, Durable::no).ok());
    told_.clear();
  }

  Folder folder_;
  std::string whole_;
  std::vector<Error> told_;
};
INSTANTIATE_TEST_SUITE_P(All, EveryStore, ::testing::ValuesIn(kAll),
                         [](const auto& each) -> std::string {
                           return fs::path(each.param.name).stem();
                         });

// Whoever asks in the moment in which a daemon makes its file is told that nothing is kept.
TEST(SqliteFile, WhoReadsWhatIsBeingMadeSeesAllOrNothing) {
  Folder folder;
  for (int i = 0; i < 40; ++i) {
    const std::string path = folder.file(fmt::format("history-{}.db", i));
    std::atomic<bool> made = false;
    std::thread writer([&] {
      std::vector<Error> told;
      EXPECT_TRUE(use_history(path, told).ok());
      made = true;
    });
    while (!made) {
      const auto read = read_events(path, {});
      const bool fits =
          read.ok() || read.error().code == Errc::not_found || read.error().code == Errc::busy;
      EXPECT_TRUE(fits) << read.error().message;
    }
    writer.join();
    EXPECT_TRUE(read_events(path, {}).ok());
  }
}

// The version stands in bytes 60 to 63: as an index it was any address.
TEST_P(EveryStore, AVersionThatCannotBeIsABrokenFile) {
  const bool is_results = std::string_view(GetParam().name) == "results.lab";
  for (const int first : {0x80, 0xff, 0xfe}) {
    std::string spoiled = whole_;
    spoiled[60] = static_cast<char>(first);
    place(spoiled);
    const auto done = use();
    if (is_results) {
      EXPECT_EQ(done.error().code, Errc::bad_data);
      continue;
    }
    EXPECT_TRUE(done.ok()) << done.error().message;
    ASSERT_EQ(told_.size(), 1u);
    EXPECT_EQ(told_[0].code, Errc::bad_data);
    const auto asides = folder_.asides(GetParam().name);
    ASSERT_EQ(asides.size(), 1u);
    EXPECT_EQ(*read_file(asides[0]), spoiled);
  }
}

// Version 0 has no tables, and a file that has them is another's.
TEST_P(EveryStore, AVersionOfOtherTablesIsABrokenFile) {
  std::string spoiled = whole_;
  for (int at = 60; at < 64; ++at) spoiled[static_cast<std::size_t>(at)] = 0;
  place(spoiled);
  const auto done = use();
  if (std::string_view(GetParam().name) == "results.lab")
    EXPECT_EQ(done.error().code, Errc::bad_data) << done.error().message;
  else
    EXPECT_TRUE(done.ok()) << done.error().message;
}

// Some say that they are broken, some do not notice; every file can be given, and nobody dies of
// it.
TEST_P(EveryStore, NoBitOfItsHeadIsDeadly) {
  rc::check([&] {
    std::string spoiled = whole_;
    const int flips = *rc::gen::inRange(1, 4);
    for (int i = 0; i < flips; ++i)
      spoiled[*rc::gen::inRange<std::size_t>(0, 200)] ^=
          static_cast<char>(1 << *rc::gen::inRange(0, 8));
    place(spoiled);
    (void)use().ok();
    (void)use().ok();
  });
}

// Where a process died of a file twice the third begins anew.
TEST_P(EveryStore, TwoCrashesSetItAside) {
  const bool is_a_daemons = std::any_of(
      std::begin(kDaemons), std::end(kDaemons),
      [](const Store& store) { return std::string_view(store.name) == GetParam().name; });
  if (!is_a_daemons) GTEST_SKIP() << "its program ends with it";
  for (int i = 0; i < SqliteFile::kMostCrashes; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      OpeningMark mark(path());
      ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  }
  EXPECT_TRUE(use().ok());
  EXPECT_EQ(told_.size(), 1u);
  const auto asides = folder_.asides(GetParam().name);
  ASSERT_EQ(asides.size(), 1u);
  EXPECT_EQ(*read_file(asides[0]), whole_);
  EXPECT_FALSE(fs::exists(path() + ".opening"));
}

}  // namespace
}  // namespace derate
