// What recurs, kept in one SQLite file: jobs, their trials with the marks of their metric, and what
// settings of a knob came to. Rows are plain: what they mean is the business of src/tune.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace SQLite {
class Database;
}

namespace derate {

class SqliteFile;

struct TuneJobRow {
  std::string name;
  std::uint32_t uid = 0;
  std::string spec;  // JSON
  WallTime created{};

  bool operator==(const TuneJobRow&) const = default;
};

struct TuneMarkRow {
  double epochs = 0, metric = 0;

  bool operator==(const TuneMarkRow&) const = default;
};

struct TuneTrialRow {
  std::int64_t id = 0;
  std::string job;
  int recurrence = 0, batch_size = 0;
  bool exploring = false;
  std::string state;
  double epochs = 0;
  double cost = 0, profiling_cost = 0;  // J
  std::optional<double> epoch_cost, default_epoch_cost, stop_cost;
  std::optional<double> metric, steps;
  double energy = 0, time_s = 0;  // J, s
  std::string verdict, verdict_why, why, ended_why;
  std::string token, gpus;  // UUIDs, comma-separated
  std::uint32_t uid = 0;
  WallTime began{};
  std::optional<WallTime> ended;
  std::vector<TuneMarkRow> marks;

  bool operator==(const TuneTrialRow&) const = default;
};

struct TuneRows {
  std::vector<TuneJobRow> jobs;      // by name
  std::vector<TuneTrialRow> trials;  // by id
  std::int64_t last_trial = 0;       // that was ever given, its job may be gone

  bool operator==(const TuneRows&) const = default;
};

// Of which work what was measured of a knob: on other chips, with other batch sizes, it is another.
struct TuneProfileKey {
  std::string chip, model, knob;
  int batch_size = 0;

  bool operator==(const TuneProfileKey&) const = default;
};

struct TuneReadingRow {
  double setting = 0, rate = 0;  // W or MHz; work per second
  double power_watts = 0;

  bool operator==(const TuneReadingRow&) const = default;
};

// For one thread. A write does not wait for the disk: a killed process loses nothing that was
// written, a power cut the newest rows.
class TuneStore {
 public:
  // What a user's jobs and trials may take, who is not root.
  static constexpr std::int64_t kMostBytesOfUser = 16 << 20;
  // Of all profiles; then those that were measured the longest ago go.
  static constexpr int kMostReadings = 20'000;

  // That a file was set aside (bad_data).
  using Tell = std::function<void(const Error&)>;

  // Opened when it is first needed, and made; a file that is broken, or not ours, becomes
  // PATH.aside, one of which processes crashed PATH.aside-TIME (sqlite_file.h).
  explicit TuneStore(std::string path, Tell tell = {});
  ~TuneStore();
  TuneStore(const TuneStore&) = delete;
  TuneStore& operator=(const TuneStore&) = delete;

  // Errors of all: no_permission, busy (also with a log that cannot be cut), io, bad_data for a
  // file that a newer version wrote. `take` is given the rows: a process that dies of them counts
  // as one that died of the file.
  Result<void> load(const std::function<void(const TuneRows&)>& take);
  Result<TuneRows> load();
  // `gone`: trials of it that go with the same stroke, since its sums count them now.
  Result<void> put(const TuneJobRow& row, const std::vector<std::int64_t>& gone = {});
  // Marks that were kept stay as they are, but for the last, as long as it runs and they are no
  // fewer. Errors: io when its job is not there.
  Result<void> put(const TuneTrialRow& row);
  // With its trials.
  Result<void> remove_job(const std::string& name);

  // What is put or removed from here on is written by write_together(): all of it or nothing, but
  // for rows whose job is not there, which are left out. Errors: as of put().
  void collect();
  Result<void> write_together();

  // Whether a user may keep more. Errors: busy, naming what is kept and what is allowed. A file
  // that cannot be asked forbids nothing.
  Result<void> check_room(std::uint32_t uid);

  // Ascending by setting; empty when there is none.
  Result<std::vector<TuneReadingRow>> profile(const TuneProfileKey& key);
  // In place of what there was.
  Result<void> put(const TuneProfileKey& key, const std::vector<TuneReadingRow>& readings,
                   WallTime now);

  // Raised when another file was begun, as when it was deleted: what is known is to be put anew.
  int generation() const;

 private:
  using Change = std::function<void(SQLite::Database& sqlite)>;
  Result<void> write(Change change);

  std::string path_;
  std::unique_ptr<SqliteFile> file_;
  std::optional<std::vector<Change>> collected_;
};

}  // namespace derate
