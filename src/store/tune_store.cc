#include "store/tune_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"
#include "store/sqlite_file.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMigrations[] = {
    // AUTOINCREMENT: the id of a trial that went is never another's.
    R"(CREATE TABLE job (
         name TEXT PRIMARY KEY, uid INTEGER NOT NULL, spec TEXT NOT NULL,
         created_unix_nanoseconds INTEGER NOT NULL);
       CREATE TABLE trial (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         job TEXT NOT NULL REFERENCES job (name) ON DELETE CASCADE,
         recurrence INTEGER NOT NULL, batch_size INTEGER NOT NULL, exploring INTEGER NOT NULL,
         state TEXT NOT NULL, epochs REAL NOT NULL, cost_joules REAL NOT NULL,
         profiling_cost_joules REAL NOT NULL, epoch_cost_joules REAL,
         default_epoch_cost_joules REAL, stop_cost_joules REAL, metric REAL, steps REAL,
         energy_joules REAL NOT NULL, time_seconds REAL NOT NULL,
         verdict TEXT NOT NULL, verdict_why TEXT NOT NULL, why TEXT NOT NULL,
         ended_why TEXT NOT NULL, token TEXT NOT NULL, gpus TEXT NOT NULL, uid INTEGER NOT NULL,
         began_unix_nanoseconds INTEGER NOT NULL, ended_unix_nanoseconds INTEGER);
       CREATE INDEX trial_of_job ON trial (job);
       CREATE TABLE mark (
         trial INTEGER NOT NULL REFERENCES trial (id) ON DELETE CASCADE, place INTEGER NOT NULL,
         epochs REAL NOT NULL, metric REAL NOT NULL, PRIMARY KEY (trial, place)) WITHOUT ROWID;
       CREATE TABLE reading (
         chip TEXT NOT NULL, model TEXT NOT NULL, knob TEXT NOT NULL, batch_size INTEGER NOT NULL,
         setting REAL NOT NULL, rate REAL NOT NULL, power_watts REAL NOT NULL,
         kept_unix_nanoseconds INTEGER NOT NULL,
         PRIMARY KEY (chip, model, knob, batch_size, setting)) WITHOUT ROWID;)",
};
constexpr SqliteSchema kSchema{0x64727475, "the jobs that recur", kMigrations};  // "drtu"

// Long enough for a reader beside us, short for a control loop.
constexpr int kBusyMilliseconds = 3;
constexpr int kWritesInLog = 500;  // each of some 16 KiB

std::int64_t nanoseconds(WallTime time) { return time.time_since_epoch().count(); }
WallTime wall_time(std::int64_t nanoseconds) { return WallTime{Duration(nanoseconds)}; }

// Binds the next parameters one by one, and reads columns in the same order.
struct Binder {
  SQLite::Statement& row;
  int at = 0;
  void value(double each) { row.bind(++at, each); }
  void value(int each) { row.bind(++at, each); }
  void value(bool each) { row.bind(++at, each ? 1 : 0); }
  void value(std::uint32_t each) { row.bind(++at, static_cast<std::int64_t>(each)); }
  void value(std::int64_t each) { row.bind(++at, each); }
  void value(const std::string& each) { row.bind(++at, each); }
  void value(WallTime each) { value(nanoseconds(each)); }
  template <class T>
  void value(const std::optional<T>& each) {
    if (each)
      value(*each);
    else
      row.bind(++at);
  }
};

struct Reader {
  SQLite::Statement& row;
  int at = 0;
  void value(double& each) { each = row.getColumn(at++).getDouble(); }
  void value(int& each) { each = row.getColumn(at++).getInt(); }
  void value(bool& each) { each = row.getColumn(at++).getInt() != 0; }
  void value(std::uint32_t& each) {
    each = static_cast<std::uint32_t>(row.getColumn(at++).getInt64());
  }
  void value(std::int64_t& each) { each = row.getColumn(at++).getInt64(); }
  void value(std::string& each) { each = row.getColumn(at++).getString(); }
  void value(WallTime& each) { each = wall_time(row.getColumn(at++).getInt64()); }
  template <class T>
  void value(std::optional<T>& each) {
    if (row.getColumn(at).isNull()) {
      ++at;
      return;
    }
    value(each.emplace());
  }
};

constexpr const char* kTrialColumns =
    "id, job, recurrence, batch_size, exploring, state, epochs, cost_joules, "
    "profiling_cost_joules, epoch_cost_joules, default_epoch_cost_joules, stop_cost_joules, "
    "metric, steps, energy_joules, time_seconds, verdict, verdict_why, why, ended_why, token, "
    "gpus, uid, "
    "began_unix_nanoseconds, ended_unix_nanoseconds";
constexpr int kTrialColumnCount = 25;

// Every column of a trial's row, in kTrialColumns' order. T is TuneTrialRow or const TuneTrialRow.
template <class T, class V>
void visit_trial(T& row, V&& visitor) {
  const auto all = [&](auto&... each) { (visitor.value(each), ...); };
  all(row.id, row.job, row.recurrence, row.batch_size, row.exploring, row.state, row.epochs,
      row.cost, row.profiling_cost, row.epoch_cost, row.default_epoch_cost, row.stop_cost,
      row.metric, row.steps, row.energy, row.time_s, row.verdict, row.verdict_why, row.why,
      row.ended_why, row.token, row.gpus, row.uid, row.began, row.ended);
}

std::string places(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += i == 0 ? "?" : ", ?";
  return out;
}

}  // namespace

struct TuneStore::Database {
  SQLite::Database sqlite;

  bool moved() { return has_moved(sqlite); }

  void begin() {
    sqlite.setBusyTimeout(kBusyMilliseconds);
    migrate(sqlite, kSchema);
    sqlite.exec(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; "
        "PRAGMA foreign_keys = ON");
    if (const std::string found = sqlite.execAndGet("PRAGMA quick_check(1)").getString();
        found != "ok")
      throw SQLite::Exception(found, SQLITE_CORRUPT);
  }

  TuneRows load() {
    TuneRows out;
    SQLite::Statement job(
        sqlite, "SELECT name, uid, spec, created_unix_nanoseconds FROM job ORDER BY name");
    while (job.executeStep()) {
      TuneJobRow& row = out.jobs.emplace_back();
      Reader read{job};
      read.value(row.name), read.value(row.uid), read.value(row.spec), read.value(row.created);
    }
    SQLite::Statement trial(sqlite, fmt::format("SELECT {} FROM trial ORDER BY id", kTrialColumns));
    std::map<std::int64_t, std::size_t> place;
    while (trial.executeStep()) {
      visit_trial(out.trials.emplace_back(), Reader{trial});
      place[out.trials.back().id] = out.trials.size() - 1;
    }
    SQLite::Statement mark(sqlite, "SELECT trial, epochs, metric FROM mark ORDER BY trial, place");
    while (mark.executeStep())
      if (const auto at = place.find(mark.getColumn(0).getInt64()); at != place.end())
        out.trials[at->second].marks.push_back(
            {mark.getColumn(1).getDouble(), mark.getColumn(2).getDouble()});
    SQLite::Statement last(sqlite, "SELECT seq FROM sqlite_sequence WHERE name = 'trial'");
    if (last.executeStep()) out.last_trial = last.getColumn(0).getInt64();
    return out;
  }

  void put(const TuneJobRow& row, const std::vector<std::int64_t>& gone) {
    SQLite::Transaction all(sqlite, SQLite::TransactionBehavior::IMMEDIATE);
    SQLite::Statement statement(
        sqlite,
        "INSERT INTO job (name, uid, spec, created_unix_nanoseconds) VALUES (?,?,?,?) ON "
        "CONFLICT (name) DO UPDATE SET uid = excluded.uid, spec = excluded.spec, "
        "created_unix_nanoseconds = excluded.created_unix_nanoseconds");
    Binder bind{statement};
    bind.value(row.name), bind.value(row.uid), bind.value(row.spec), bind.value(row.created);
    statement.exec();
    for (const std::int64_t id : gone) {
      SQLite::Statement trial(sqlite, "DELETE FROM trial WHERE id = ? AND job = ?");
      SQLite::bind(trial, id, row.name);
      trial.exec();
    }
    all.commit();
  }

  void put(const TuneTrialRow& row) {
    SQLite::Transaction all(sqlite, SQLite::TransactionBehavior::IMMEDIATE);
    // Not INSERT OR REPLACE: that would delete the row, and its marks with it.
    SQLite::Statement gone(sqlite, "SELECT count(*) FROM trial WHERE id = ?");
    gone.bind(1, row.id);
    const bool there = gone.executeStep() && gone.getColumn(0).getInt() > 0;
    SQLite::Statement statement(
        sqlite, there ? fmt::format("UPDATE trial SET ({}) = ({}) WHERE id = ?{}", kTrialColumns,
                                    places(kTrialColumnCount), 1)
                      : fmt::format("INSERT INTO trial ({}) VALUES ({})", kTrialColumns,
                                    places(kTrialColumnCount)));
    visit_trial(row, Binder{statement});
    statement.exec();
    SQLite::Statement kept(sqlite, "SELECT count(*) FROM mark WHERE trial = ?");
    kept.bind(1, row.id);
    kept.executeStep();
    const auto before = static_cast<std::size_t>(kept.getColumn(0).getInt());
    for (std::size_t i = before == 0 ? 0 : before - 1; i < row.marks.size(); ++i) {
      SQLite::Statement mark(
          sqlite, "INSERT OR REPLACE INTO mark (trial, place, epochs, metric) VALUES (?,?,?,?)");
      SQLite::bind(mark, row.id, static_cast<std::int64_t>(i), row.marks[i].epochs,
                   row.marks[i].metric);
      mark.exec();
    }
    all.commit();
  }

  std::vector<TuneReadingRow> profile(const TuneProfileKey& key) {
    SQLite::Statement row(sqlite,
                          "SELECT setting, rate, power_watts FROM reading WHERE chip = ? AND "
                          "model = ? AND knob = ? AND batch_size = ? ORDER BY setting");
    SQLite::bind(row, key.chip, key.model, key.knob, key.batch_size);
    std::vector<TuneReadingRow> out;
    while (row.executeStep())
      out.push_back({row.getColumn(0).getDouble(), row.getColumn(1).getDouble(),
                     row.getColumn(2).getDouble()});
    return out;
  }

  void put(const TuneProfileKey& key, const std::vector<TuneReadingRow>& readings, WallTime now) {
    SQLite::Transaction all(sqlite, SQLite::TransactionBehavior::IMMEDIATE);
    SQLite::Statement old(sqlite,
                          "DELETE FROM reading WHERE chip = ? AND model = ? AND knob = ? "
                          "AND batch_size = ?");
    SQLite::bind(old, key.chip, key.model, key.knob, key.batch_size);
    old.exec();
    for (const TuneReadingRow& reading : readings) {
      SQLite::Statement row(sqlite,
                            "INSERT OR REPLACE INTO reading (chip, model, knob, batch_size, "
                            "setting, rate, power_watts, kept_unix_nanoseconds) VALUES "
                            "(?,?,?,?,?,?,?,?)");
      SQLite::bind(row, key.chip, key.model, key.knob, key.batch_size, reading.setting,
                   reading.rate, reading.power_watts, nanoseconds(now));
      row.exec();
    }
    all.commit();
  }
};

TuneStore::TuneStore(std::string path, Tell tell)
    : path_(std::move(path)), tell_(std::move(tell)) {}
TuneStore::~TuneStore() = default;

void TuneStore::open() {
  if (database_ != nullptr && !database_->moved()) return;
  database_.reset();
  make_file(path_, 0600);  // tokens stand in it
  auto made = std::make_unique<Database>(Database{SQLite::Database(path_, SQLite::OPEN_READWRITE)});
  made->begin();
  database_ = std::move(made);
  ++generation_;
}

// Of a file that can be looked at later.
bool TuneStore::set_aside(const std::string& why) {
  database_.reset();
  std::error_code failed;
  if (!fs::is_regular_file(fs::symlink_status(path_, failed))) return false;
  fs::rename(path_, path_ + ".aside", failed);
  if (failed) return false;
  for (const char* ending : {"-wal", "-shm"}) fs::remove(path_ + ending, failed);
  if (tell_) tell_({Errc::bad_data, why + ": set aside, begun anew"});
  return true;
}

// Exceptions end here. A broken file is set aside, and the same is done with a new one.
template <class F>
auto TuneStore::attempt(F&& work) -> Result<decltype(work())> {
  for (bool again = true;; again = false) {
    try {
      open();
      if constexpr (std::is_void_v<decltype(work())>) {
        work();
        if (++writes_ >= kWritesInLog) tidy_log();
        return {};
      } else {
        return work();
      }
    } catch (const SQLite::Exception& problem) {
      Error error = sqlite_error(problem, path_);
      const bool broken = error.code == Errc::bad_data && problem.getErrorCode() != SQLITE_SCHEMA;
      if (again && broken && set_aside(error.message)) continue;
      if (error.code != Errc::busy && problem.getErrorCode() != SQLITE_CONSTRAINT)
        database_.reset();
      return error;
    }
  }
}

// Moves the log into the file, which waits for the disk: on a connection and thread of its own.
void TuneStore::tidy_log() {
  if (tidying_.valid() && tidying_.wait_for(Duration{}) != std::future_status::ready) return;
  writes_ = 0;
  tidying_ = std::async(std::launch::async, [path = path_] {
    try {
      SQLite::Database(path, SQLite::OPEN_READWRITE).exec("PRAGMA wal_checkpoint(PASSIVE)");
    } catch (const SQLite::Exception&) {  // the next one moves both
    }
  });
}

Result<TuneRows> TuneStore::load() {
  // Made when there is something to keep: where nobody tunes jobs the journal needs the room.
  if (database_ == nullptr && ::access(path_.c_str(), F_OK) != 0 && errno == ENOENT)
    return TuneRows{};
  return attempt([&] { return database_->load(); });
}

Result<void> TuneStore::put(const TuneJobRow& row, const std::vector<std::int64_t>& gone) {
  return attempt([&] { database_->put(row, gone); });
}

Result<void> TuneStore::put(const TuneTrialRow& row) {
  return attempt([&] { database_->put(row); });
}

Result<void> TuneStore::remove_job(const std::string& name) {
  return attempt([&] {
    SQLite::Statement row(database_->sqlite, "DELETE FROM job WHERE name = ?");
    row.bind(1, name);
    row.exec();
  });
}

Result<std::vector<TuneReadingRow>> TuneStore::profile(const TuneProfileKey& key) {
  return attempt([&] { return database_->profile(key); });
}

Result<void> TuneStore::put(const TuneProfileKey& key, const std::vector<TuneReadingRow>& readings,
                            WallTime now) {
  return attempt([&] { database_->put(key, readings, now); });
}

}  // namespace derate
