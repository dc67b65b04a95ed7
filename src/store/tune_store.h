// Recurring jobs in one SQLite file: the jobs, their trials with the marks of their metric, and
// readings of work at settings of a knob. Rows are plain: what they mean is the business of
// src/tune.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
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

// Of which work what was measured of a knob: on other chips, with other batch sizes, it is another.
struct TuneProfileKey {
  std::string chip, model, knob;
  int batch_size = 0;

  auto operator<=>(const TuneProfileKey&) const = default;
};

struct TuneReadingRow {
  double setting = 0, rate = 0;  // W or MHz; work per second
  double power_watts = 0;

  bool operator==(const TuneReadingRow&) const = default;
};

struct TuneProfileRow {
  TuneProfileKey key;
  std::vector<TuneReadingRow> readings;  // ascending by setting
  WallTime kept{};

  bool operator==(const TuneProfileRow&) const = default;
};

struct TuneRows {
  std::vector<TuneJobRow> jobs;          // by name
  std::vector<TuneTrialRow> trials;      // by id
  std::int64_t last_trial = 0;           // that was ever given, its job may be gone
  std::vector<TuneProfileRow> profiles;  // by key

  bool operator==(const TuneRows&) const = default;
};

// What is written in one stroke, in this order.
struct TuneChanges {
  struct Job {
    TuneJobRow row;
    std::vector<std::int64_t> gone = {};  // trials that its sums count now
  };
  std::vector<std::string> removed;  // jobs, with their trials
  std::vector<Job> jobs;
  // Marks that were kept stay as they are, but for the last, as long as a trial runs and they are
  // no fewer.
  std::vector<TuneTrialRow> trials;
  std::vector<TuneProfileRow> profiles;  // each in place of what there was

  bool empty() const {
    return removed.empty() && jobs.empty() && trials.empty() && profiles.empty();
  }
};

// What each user's jobs and trials take in the file, about; by uid.
using TuneBytes = std::map<std::uint32_t, std::int64_t>;

// For one thread. A write does not wait for the disk: a killed process loses nothing that was
// written, a power cut the newest rows.
class TuneStore {
 public:
  // What a user's jobs and trials may take, who is not root.
  static constexpr std::int64_t kMostBytesOfUser = 16 << 20;
  // Of all profiles; then those that were measured the longest ago go.
  static constexpr int kMostReadings = 20'000;

  // That a file was set aside (bad_data).
  using OnError = std::function<void(const Error&)>;

  // Opened when it is first needed, and made; a file that is broken, or not ours, becomes
  // PATH.aside-TIME (sqlite_file.h).
  explicit TuneStore(std::string path, OnError on_error = {});
  ~TuneStore();
  TuneStore(const TuneStore&) = delete;
  TuneStore& operator=(const TuneStore&) = delete;

  // Errors of all: no_permission, busy (also with a log that cannot be cut), io, bad_data for a
  // file that a newer version wrote. `take` is given the rows: a process that dies of them counts
  // as one that died of the file.
  Result<void> load(const std::function<void(const TuneRows&)>& take);
  Result<TuneRows> load();
  // All of it or nothing, but for rows whose job is not there, which are left out.
  Result<void> write(const TuneChanges& changes);
  // Empty without a file.
  Result<TuneBytes> bytes_kept();

  // Raised when another file was begun, as when it was deleted: what is known is to be put anew.
  int generation() const;

 private:
  bool is_missing() const;

  std::string path_;
  std::unique_ptr<SqliteFile> file_;
};

// Whether a user may keep more. Errors: busy, naming what is kept and what is allowed.
Result<void> check_room(const TuneBytes& kept, std::uint32_t uid);

}  // namespace derate
