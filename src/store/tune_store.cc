#include "store/tune_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <map>
#include <utility>

#include "store/sqlite_file.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

constexpr const char* kTuneMigrations[] = {
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
    // How much each user keeps, so that asking costs no look at all that is kept.
    R"(ALTER TABLE trial ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
       UPDATE trial SET bytes = 256 + length(why) + length(verdict_why) + length(ended_why) +
         length(gpus) + length(token) +
         24 * (SELECT count(*) FROM mark WHERE mark.trial = trial.id);
       CREATE TABLE kept (uid INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
       INSERT INTO kept SELECT uid, sum(bytes) FROM (SELECT uid, bytes FROM trial UNION ALL
         SELECT uid, 256 + length(spec) FROM job) GROUP BY uid;
       CREATE TRIGGER job_came AFTER INSERT ON job BEGIN
         INSERT INTO kept VALUES (NEW.uid, 256 + length(NEW.spec)) ON CONFLICT (uid) DO UPDATE
           SET bytes = bytes + excluded.bytes; END;
       CREATE TRIGGER job_went AFTER DELETE ON job BEGIN
         UPDATE kept SET bytes = bytes - 256 - length(OLD.spec) WHERE uid = OLD.uid; END;
       CREATE TRIGGER job_changed AFTER UPDATE ON job BEGIN
         UPDATE kept SET bytes = bytes - 256 - length(OLD.spec) WHERE uid = OLD.uid;
         INSERT INTO kept VALUES (NEW.uid, 256 + length(NEW.spec)) ON CONFLICT (uid) DO UPDATE
           SET bytes = bytes + excluded.bytes; END;
       CREATE TRIGGER trial_came AFTER INSERT ON trial BEGIN
         INSERT INTO kept VALUES (NEW.uid, NEW.bytes) ON CONFLICT (uid) DO UPDATE
           SET bytes = bytes + excluded.bytes; END;
       CREATE TRIGGER trial_went AFTER DELETE ON trial BEGIN
         UPDATE kept SET bytes = bytes - OLD.bytes WHERE uid = OLD.uid; END;
       CREATE TRIGGER trial_changed AFTER UPDATE ON trial BEGIN
         UPDATE kept SET bytes = bytes - OLD.bytes WHERE uid = OLD.uid;
         INSERT INTO kept VALUES (NEW.uid, NEW.bytes) ON CONFLICT (uid) DO UPDATE
           SET bytes = bytes + excluded.bytes; END;)",
};
constexpr const char* kTuneReads[] = {
    "SELECT name, uid, spec, created_unix_nanoseconds FROM job",
    "SELECT id, job, recurrence, batch_size, exploring, state, epochs, cost_joules, "
    "profiling_cost_joules, epoch_cost_joules, default_epoch_cost_joules, stop_cost_joules, "
    "metric, steps, energy_joules, time_seconds, verdict, verdict_why, why, ended_why, token, "
    "gpus, uid, began_unix_nanoseconds, ended_unix_nanoseconds, bytes FROM trial",
    "SELECT trial, place, epochs, metric FROM mark",
    "SELECT chip, model, knob, batch_size, setting, rate, power_watts, kept_unix_nanoseconds FROM "
    "reading",
    "SELECT uid, bytes FROM kept",
};
constexpr SqliteSchema kTuneSchema{0x64727475, "the jobs that recur", kTuneMigrations,
                                   kTuneReads};  // "drtu"

// Long enough for a reader beside us; who writes does so beside the loop.
constexpr int kTuneBusyMilliseconds = 100;

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

// What a trial takes in the file, about.
std::int64_t bytes_of(const TuneTrialRow& row) {
  return static_cast<std::int64_t>(256 + row.why.size() + row.verdict_why.size() +
                                   row.ended_why.size() + row.gpus.size() + row.token.size() +
                                   24 * row.marks.size());
}

struct StoredTuneRows {
  SQLite::Database& sqlite;

  TuneRows load() {
    TuneRows out;
    SQLite::Statement job(
        sqlite, "SELECT name, uid, spec, created_unix_nanoseconds FROM job ORDER BY name");
    while (job.executeStep()) {
      TuneJobRow& row = out.jobs.emplace_back();
      RowReader{job}.all(row.name, row.uid, row.spec, row.created);
    }
    SQLite::Statement trial(sqlite, fmt::format("SELECT {} FROM trial ORDER BY id", kTrialColumns));
    std::map<std::int64_t, std::size_t> place;
    while (trial.executeStep()) {
      visit_trial(out.trials.emplace_back(), RowReader{trial});
      place[out.trials.back().id] = out.trials.size() - 1;
    }
    SQLite::Statement mark(sqlite, "SELECT trial, epochs, metric FROM mark ORDER BY trial, place");
    while (mark.executeStep())
      if (const auto at = place.find(mark.getColumn(0).getInt64()); at != place.end()) {
        TuneMarkRow& each = out.trials[at->second].marks.emplace_back();
        RowReader{mark, 1}.all(each.epochs, each.metric);
      }
    SQLite::Statement last(sqlite, "SELECT seq FROM sqlite_sequence WHERE name = 'trial'");
    if (last.executeStep()) out.last_trial = last.getColumn(0).getInt64();
    out.profiles = profiles();
    return out;
  }

  void put(const TuneJobRow& row, const std::vector<std::int64_t>& gone) {
    execute(sqlite,
            "INSERT INTO job (name, uid, spec, created_unix_nanoseconds) VALUES (?,?,?,?) ON "
            "CONFLICT (name) DO UPDATE SET uid = excluded.uid, spec = excluded.spec, "
            "created_unix_nanoseconds = excluded.created_unix_nanoseconds",
            row.name, row.uid, row.spec, row.created);
    for (const std::int64_t id : gone)
      execute(sqlite, "DELETE FROM trial WHERE id = ? AND job = ?", id, row.name);
  }

  void put(const TuneTrialRow& row) {
    // Not INSERT OR REPLACE: that would delete the row, and its marks with it.
    SQLite::Statement known(sqlite, "SELECT count(*) FROM trial WHERE id = ?");
    known.bind(1, row.id);
    const bool there = known.executeStep() && known.getColumn(0).getInt() > 0;
    SQLite::Statement statement(
        sqlite, there ? fmt::format("UPDATE trial SET ({}, bytes) = ({}, ?) WHERE id = ?1",
                                    kTrialColumns, places(kTrialColumnCount))
                      : fmt::format("INSERT INTO trial ({}, bytes) VALUES ({}, ?)", kTrialColumns,
                                    places(kTrialColumnCount)));
    visit_trial(row, RowBinder{statement});
    statement.bind(kTrialColumnCount + 1, bytes_of(row));
    statement.exec();
    put_marks(row);
  }

  // Of one that has ended all are written anew: they may have been thinned.
  void put_marks(const TuneTrialRow& row) {
    SQLite::Statement kept(sqlite, "SELECT count(*) FROM mark WHERE trial = ?");
    kept.bind(1, row.id);
    kept.executeStep();
    auto before = static_cast<std::size_t>(kept.getColumn(0).getInt());
    if (before > 0 && (row.ended || before > row.marks.size())) {
      execute(sqlite, "DELETE FROM mark WHERE trial = ?", row.id);
      before = 0;
    }
    SQLite::Statement mark(
        sqlite, "INSERT OR REPLACE INTO mark (trial, place, epochs, metric) VALUES (?,?,?,?)");
    for (std::size_t i = before == 0 ? 0 : before - 1; i < row.marks.size(); ++i) {
      RowBinder{mark}.all(row.id, static_cast<std::int64_t>(i), row.marks[i].epochs,
                          row.marks[i].metric);
      mark.exec();
      mark.reset();
    }
  }

  TuneBytes bytes_kept() {
    TuneBytes out;
    SQLite::Statement row(sqlite, "SELECT uid, bytes FROM kept WHERE bytes > 0");
    for (std::uint32_t uid = 0; row.executeStep();) {
      RowReader read{row};
      read.value(uid), read.value(out[uid]);
    }
    return out;
  }

  std::vector<TuneProfileRow> profiles() {
    SQLite::Statement row(sqlite,
                          "SELECT chip, model, knob, batch_size, kept_unix_nanoseconds, setting, "
                          "rate, power_watts FROM reading ORDER BY chip, model, knob, batch_size, "
                          "setting");
    std::vector<TuneProfileRow> out;
    while (row.executeStep()) {
      TuneProfileRow next;
      auto& [chip, model, knob, batch_size] = next.key;
      TuneReadingRow& reading = next.readings.emplace_back();
      RowReader{row}.all(chip, model, knob, batch_size, next.kept, reading.setting, reading.rate,
                         reading.power_watts);
      if (!out.empty() && out.back().key == next.key)
        out.back().readings.push_back(reading);
      else
        out.push_back(std::move(next));
    }
    return out;
  }

  void put(const TuneProfileRow& profile) {
    const TuneProfileKey& key = profile.key;
    execute(sqlite,
            "DELETE FROM reading WHERE chip = ? AND model = ? AND knob = ? AND batch_size = ?",
            key.chip, key.model, key.knob, key.batch_size);
    for (const TuneReadingRow& reading : profile.readings)
      execute(sqlite,
              "INSERT OR REPLACE INTO reading (chip, model, knob, batch_size, setting, rate, "
              "power_watts, kept_unix_nanoseconds) VALUES (?,?,?,?,?,?,?,?)",
              key.chip, key.model, key.knob, key.batch_size, reading.setting, reading.rate,
              reading.power_watts, profile.kept);
    // Names of models are their users' to choose: the number is bounded.
    execute(sqlite,
            "DELETE FROM reading WHERE (chip, model, knob, batch_size, setting) IN "
            "(SELECT chip, model, knob, batch_size, setting FROM reading ORDER BY "
            "kept_unix_nanoseconds DESC LIMIT -1 OFFSET ?)",
            TuneStore::kMostReadings);
  }

  void write(const TuneChanges& changes) {
    const auto unless_jobless = [](const auto& put) {
      try {
        put();
      } catch (const SQLite::Exception& problem) {
        if (problem.getErrorCode() != SQLITE_CONSTRAINT) throw;
      }
    };
    for (const std::string& job : changes.removed)
      execute(sqlite, "DELETE FROM job WHERE name = ?", job);
    for (const TuneChanges::Job& job : changes.jobs) put(job.row, job.gone);
    for (const TuneTrialRow& row : changes.trials) unless_jobless([&] { put(row); });
    for (const TuneProfileRow& profile : changes.profiles) put(profile);
  }
};

}  // namespace

TuneStore::TuneStore(std::string path, OnError on_error)
    : path_(std::move(path)),
      file_(std::make_unique<SqliteFile>(
          SqliteFile::Options{.path = path_,
                              .schema = kTuneSchema,
                              .mode = 0600,  // tokens stand in it
                              .busy_milliseconds = kTuneBusyMilliseconds,
                              .cut_log = SqliteFile::CutLog::firmly,  // everybody may begin trials
                              .on_error = std::move(on_error)})) {}
TuneStore::~TuneStore() = default;

int TuneStore::generation() const { return file_->generation(); }

// Made when there is something to keep: where nobody tunes jobs the journal needs the room.
bool TuneStore::is_missing() const { return !file_->is_open() && derate::is_missing(path_); }

Result<void> TuneStore::load(const std::function<void(const TuneRows&)>& take) {
  if (is_missing()) {
    take({});
    return {};
  }
  return file_->attempt(SqliteFile::Use::read,
                        [&](SQLite::Database& sqlite) { take(StoredTuneRows{sqlite}.load()); });
}

Result<TuneRows> TuneStore::load() {
  TuneRows out;
  TRY(load([&](const TuneRows& rows) { out = rows; }));
  return out;
}

Result<void> TuneStore::write(const TuneChanges& changes) {
  if (changes.empty()) return {};
  return file_->write([&](SQLite::Database& sqlite) { StoredTuneRows{sqlite}.write(changes); });
}

Result<TuneBytes> TuneStore::bytes_kept() {
  if (is_missing()) return TuneBytes{};
  return file_->attempt(SqliteFile::Use::read, [](SQLite::Database& sqlite) {
    return StoredTuneRows{sqlite}.bytes_kept();
  });
}

Result<void> check_room(const TuneBytes& kept, std::uint32_t uid) {
  const auto bytes = kept.find(uid);
  if (uid == 0 || bytes == kept.end() || bytes->second < TuneStore::kMostBytesOfUser) return {};
  constexpr double kMiB = 1 << 20;
  return Error{
      Errc::busy,
      fmt::format("user {} keeps {:.1f} MiB of jobs and trials, allowed are {:.0f}: forget "
                  "a job (derate tune job remove NAME)",
                  uid, static_cast<double>(bytes->second) / kMiB,
                  TuneStore::kMostBytesOfUser / kMiB)};
}

}  // namespace derate
