// Files of a history that are not as they were written, and places where nothing can be written:
// an error, or begun anew, never another figure, and never a crash.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "base/errc_word.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "store/history/history_chunk.h"
#include "store/history/history_file.h"
#include "store/history/test_history_data.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::size_t kPageBytes = 4096;

// Two hours of two GPUs.
const std::vector<HistorySecond>& whole_truth() {
  static const std::vector<HistorySecond> kSeconds = some_seconds(kHistoryBegin, 2 * 3600);
  return kSeconds;
}

// The file of it, with an event and a decision, and nothing in the log.
const std::string& whole_history() {
  static const std::string kBytes = [] {
    const Folder folder;
    {
      HistoryStore store(folder.file());
      Duration ran{};
      add_seconds(store, whole_truth(), ran);
      const Event event{.time = kHistoryBegin, .kind = EventKind::started, .message = "begun"};
      const HistoryDecision decision{.time = kHistoryBegin, .gpu = "GPU-0", .reason = "it pays"};
      CHECK(store.add({.events = {event}, .decisions = {decision}}, ran).ok());
      CHECK(store.tidy(ran).ok());
    }
    CHECK(!fs::exists(folder.file() + "-wal"));
    return *read_file(folder.file());
  }();
  return kBytes;
}

const HistoryQuery kAllOfIt{
    .from = WallTime::min(), .to = WallTime::max(), .most_points = std::size_t{1} << 40};

void place_history(const Folder& folder, const std::string& bytes) {
  for (const auto& entry : fs::directory_iterator(folder.path())) fs::remove_all(entry.path());
  CHECK(write_file_atomically(folder.file(), bytes, Durable::no).ok());
}

// Everything that can be asked of it; true where all of it is an answer.
bool read_everything(const std::string& path) {
  bool good = read_history(path, kAllOfIt).ok();
  for (const SavingsBy by : {SavingsBy::gpu, SavingsBy::user})
    good = read_savings(path, by, WallTime::min(), WallTime::max()).ok() && good;
  good = read_events(path, {}).ok() && good;
  return read_decisions(path, "GPU-0", WallTime::max(), 10).ok() && good;
}

// Every point that is told is one that was written at that time. A name may have changed: nothing
// tells that.
bool tells_nothing_else(const std::string& path) {
  const auto history = read_history(path, kAllOfIt);
  if (!history.ok() || history->step != 1s) return true;
  const auto points = truth_of(*history);
  return std::all_of(points.begin(), points.end(), [](const auto& each) {
    const Duration after = each.first.second - kHistoryBegin;
    if (after < 0s || after >= whole_truth().size() * 1s) return false;
    const auto& parts = whole_truth()[static_cast<std::size_t>(after / 1s)].parts;
    return std::any_of(parts.begin(), parts.end(),
                       [&](const auto& part) { return part.point == each.second; });
  });
}

TEST(HistoryDamage, AFileCutAtAnyPageIsSetAsideOrReadAsAWhole) {
  const std::string& whole = whole_history();
  ASSERT_EQ(whole.size() % kPageBytes, 0u);
  ASSERT_GT(whole.size() / kPageBytes, 30u);
  const Folder folder;
  for (std::size_t size = 0; size < whole.size(); size += kPageBytes) {
    place_history(folder, whole.substr(0, size));
    EXPECT_FALSE(read_everything(folder.file())) << size;
    std::vector<Error> told;
    HistoryStore store(folder.file(), {}, [&](const Error& error) { told.push_back(error); });
    const HistorySecond second{kHistoryBegin + 400 * 24h, {{gpu_key(5), energy_point(77)}}};
    ASSERT_TRUE(store.add({.seconds = {second}}, 1s).ok()) << size;
    ASSERT_TRUE(store.tidy(1s).ok()) << size;
    EXPECT_EQ(told.size(), size == 0 ? 0u : 1u) << size;
    EXPECT_TRUE(read_everything(folder.file())) << size;
    EXPECT_EQ(energy_of(truth_of(*read_history(folder.file(), kAllOfIt))), 77) << size;
  }
}

// In a file that is the daemon's and root's: bits that rot.
TEST(HistoryDamage, ABitThatFlipsIsNoOtherFigure) {
  ASSERT_GT(whole_history().size(), 100'000u);
  rc::check([] {
    const Folder folder;
    std::string spoiled = whole_history();
    const int flips = *rc::gen::inRange(1, 4);
    for (int i = 0; i < flips; ++i)
      spoiled[*rc::gen::inRange<std::size_t>(0, spoiled.size())] ^=
          static_cast<char>(1 << *rc::gen::inRange(0, 8));
    place_history(folder, spoiled);
    (void)read_everything(folder.file());
    RC_ASSERT(tells_nothing_else(folder.file()));
    HistoryStore store(folder.file());
    Duration ran{};
    const auto more = some_seconds(kHistoryBegin + 200s, 70);  // joins what is there
    const auto added = store.add({.seconds = more}, ran += 70s);
    RC_ASSERT(added.ok());
    (void)store.tidy(ran).ok();
    (void)read_everything(folder.file());
  });
}

// --- nonsense in a file that is whole ------------------------------------------------------------

void change_history(const Folder& folder, const std::string& sql, const std::string& blob) {
  SQLite::Database sqlite(folder.file(), SQLite::OPEN_READWRITE);
  SQLite::Statement change(sqlite, sql);
  if (change.getBindParameterCount() > 0)
    change.bind(1, blob.data(), static_cast<int>(blob.size()));
  change.exec();
}

TEST(HistoryDamage, ARowOfNonsenseIsAGapAndIsToldAndReplaced) {
  const Folder folder;
  place_history(folder, whole_history());
  const std::string minute = std::to_string(kHistoryBegin.time_since_epoch() / 1min + 5);
  change_history(folder, "UPDATE gpu_second SET parts = ? WHERE id = " + minute, "nonsense");
  auto history = *read_history(folder.file(), kAllOfIt);
  EXPECT_EQ(history.broken_rows, 1u);
  ASSERT_EQ(history.series.size(), 4u);
  EXPECT_EQ(history.series[0].steps.size(), whole_truth().size() - 60);
  EXPECT_EQ(history.series[1].steps.size(), whole_truth().size());
  EXPECT_TRUE(tells_nothing_else(folder.file()));
  // By the minute it is known.
  HistoryQuery by_minute = kAllOfIt;
  by_minute.most_points = 120;
  EXPECT_EQ(read_history(folder.file(), by_minute)->broken_rows, 0u);

  std::vector<Error> told;
  HistoryStore store(folder.file(), {}, [&](const Error& error) { told.push_back(error); });
  Duration ran{};
  add_seconds(store, some_seconds(kHistoryBegin + 5min, 60), ran);
  add_seconds(store, some_seconds(kHistoryBegin + 3h, 61), ran);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].code, Errc::bad_data);
  EXPECT_NE(told[0].message.find("gpu_second"), std::string::npos) << told[0].message;
  history = *read_history(folder.file(), kAllOfIt);
  EXPECT_EQ(history.broken_rows, 0u);
  EXPECT_TRUE(folder.asides().empty());
}

// What no Derate wrote although its checksum is right, in every table.
RC_GTEST_PROP(HistoryDamage, NoBytesOfARowAreDeadly, ()) {
  const Folder folder;
  place_history(folder, whole_history());
  const HistoryTable table{*rc::gen::element(HistoryKind::gpu, HistoryKind::tenant),
                           *rc::gen::inRange<std::size_t>(0, kHistoryTierCount)};
  std::string parts;
  const int many = *rc::gen::inRange(0, 4);
  for (int i = 0; i < many; ++i)
    append_part(parts, *rc::gen::inRange<std::int64_t>(-1, 6), *rc::gen::arbitrary<std::string>());
  HistoryRow row{.row = floor_divide(kHistoryBegin.time_since_epoch() / 1s, table.scale().row_s()),
                 .run_ms = *rc::gen::arbitrary<std::int64_t>(),
                 .slots = *rc::gen::arbitrary<std::uint64_t>()};
  row.bytes = seal_row(table, row, parts);
  change_history(folder, "UPDATE recent SET gpu = substr(gpu, 2)", "");
  change_history(folder,
                 fmt::format("INSERT OR REPLACE INTO {} VALUES ({}, {}, {}, ?)", table.name(),
                             row.row, row.run_ms, static_cast<std::int64_t>(row.slots)),
                 row.bytes);
  (void)read_everything(folder.file());
  HistoryStore store(folder.file());
  Duration ran{};
  add_seconds(store, some_seconds(kHistoryBegin, 130), ran);
  RC_ASSERT(store.tidy(ran).ok());
  RC_ASSERT(read_everything(folder.file()));
}

TEST(HistoryDamage, AnotherTypeInAColumnIsNoCrash) {
  for (const char* change :
       {"UPDATE gpu_minute SET parts = 'text', slots = 'text'", "UPDATE recent SET gpu = 17",
        "UPDATE run SET total_ms = 'long'", "DELETE FROM run", "UPDATE series SET kind = 'x'",
        "UPDATE event SET fields = '[[[[', kind = 'nothing'", "UPDATE event SET fields = '[[1,2]]'",
        "UPDATE decision SET time = 'now', asked_clock_mhz = x'00'",
        "UPDATE gpu_second SET run_ms = 9223372036854775807", "DELETE FROM sqlite_sequence"}) {
    const Folder folder;
    place_history(folder, whole_history());
    change_history(folder, change, "");
    (void)read_everything(folder.file());
    HistoryStore store(folder.file());
    Duration ran{};
    add_seconds(store, some_seconds(kHistoryBegin + 2h, 130), ran);
    EXPECT_TRUE(store.tidy(ran).ok()) << change;
    EXPECT_TRUE(store.last_event().ok()) << change;
    EXPECT_TRUE(read_everything(folder.file())) << change;
  }
}

// --- where nothing can be written ----------------------------------------------------------------

TEST(HistoryDamage, AFullDiskIsToldAndOver) {
  const Folder folder;
  HistoryStore store(folder.file());
  Duration ran{};
  const auto all = some_seconds(kHistoryBegin, 400);
  add_seconds(store, {all.begin(), all.begin() + 100}, ran);
  ASSERT_TRUE(store.tidy(ran).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  std::vector<Errc> codes;
  std::size_t added = 100;
  for (const ::rlim_t room : {200'000, 300'000, 1}) {
    rlimit full = before;
    full.rlim_cur = room;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    // Until it is full, and some more.
    for (int failures = 0; failures < 3 && added < 400;) {
      const auto done = store.add({.seconds = {all[added]}}, ran += 1s);
      if (done.ok())
        ++added;
      else
        codes.push_back(done.error().code), ++failures;
    }
    (void)store.tidy(ran).ok();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_GE(codes.size(), 3u);
  EXPECT_EQ(std::set<Errc>(codes.begin(), codes.end()), std::set<Errc>{Errc::io});
  EXPECT_LT(added, 400u);
  // There is room again: nothing is missing, and nothing is there twice.
  add_seconds(store, {all.begin() + static_cast<std::ptrdiff_t>(added), all.end()}, ran);
  ASSERT_TRUE(store.tidy(ran).ok());
  EXPECT_EQ(truth_of(*read_history(folder.file(), kAllOfIt)),
            truth_of(all, 1s, kHistoryBegin, kHistoryBegin + 400s));
  EXPECT_TRUE(folder.asides().empty());
}

TEST(HistoryDamage, WhereNobodyMayWriteItSaysSo) {
  const auto told = [] {
    const Folder folder;
    const auto add = [&] {
      HistoryStore store(folder.file());
      const auto done = store.add({.seconds = some_seconds(kHistoryBegin, 1)}, 1s);
      return done.ok() ? std::string("added ") : fmt::format("{} ", word_of(done.error().code));
    };
    std::string out;
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
    out += add();
    fs::permissions(folder.path(), fs::perms::owner_all);
    out += add();
    fs::permissions(folder.file(), fs::perms::none);
    out += add();
    const auto read = read_history(folder.file(), kAllOfIt);
    out += read.ok() ? "read " : fmt::format("{} ", word_of(read.error().code));
    fs::permissions(folder.file(), fs::perms::owner_read | fs::perms::owner_write);
    out += add();
    return out;
  };
  const std::string_view denied = word_of(Errc::no_permission);
  EXPECT_EQ(as_who_is_not_root(told), fmt::format("{0} added {0} {0} added ", denied));
}

TEST(HistoryDamage, AFileOfANewerVersionIsLeftAlone) {
  const Folder folder;
  place_history(folder, whole_history());
  change_history(folder, "PRAGMA user_version = 99", "");
  EXPECT_EQ(read_history(folder.file(), kAllOfIt).error().code, Errc::bad_data);
  HistoryStore store(folder.file());
  EXPECT_EQ(store.add({.seconds = some_seconds(kHistoryBegin, 1)}, 1s).error().code,
            Errc::bad_data);
  EXPECT_TRUE(folder.asides().empty());
}

}  // namespace
}  // namespace derate
