// What recurs, kept in one SQLite file: jobs, their trials with the marks of their metric, and what
// settings of a knob came to. Rows are plain: what they mean is the business of src/tune.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

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

// For one thread. A write does not wait for the disk: a killed process loses nothing, a power cut
// the newest rows.
class TuneStore {
 public:
  // That a file was set aside (bad_data).
  using Tell = std::function<void(const Error&)>;

  // Opened when it is first needed, and made; a file that is broken, or not ours, becomes
  // PATH.aside.
  explicit TuneStore(std::string path, Tell tell = {});
  ~TuneStore();
  TuneStore(const TuneStore&) = delete;
  TuneStore& operator=(const TuneStore&) = delete;

  // Errors of all: no_permission, busy, io, bad_data for a file that a newer version wrote.
  Result<TuneRows> load();
  // `gone`: trials of it that go with the same stroke, since its sums count them now.
  Result<void> put(const TuneJobRow& row, const std::vector<std::int64_t>& gone = {});
  // Its marks only grow, but for the last, which may be renewed. Errors: io when its job is not
  // there.
  Result<void> put(const TuneTrialRow& row);
  // With its trials.
  Result<void> remove_job(const std::string& name);

  // Ascending by setting; empty when there is none.
  Result<std::vector<TuneReadingRow>> profile(const TuneProfileKey& key);
  // In place of what there was.
  Result<void> put(const TuneProfileKey& key, const std::vector<TuneReadingRow>& readings,
                   WallTime now);

  // Raised when another file was begun, as when it was deleted: what is known is to be put anew.
  int generation() const { return generation_; }

 private:
  struct Database;
  void open();
  template <class F>
  auto attempt(F&& work) -> Result<decltype(work())>;
  bool set_aside(const std::string& why);
  void tidy_log();

  std::string path_;
  Tell tell_;
  std::unique_ptr<Database> database_;
  int generation_ = 0;
  int writes_ = 0;  // since the log was last moved into the file
  std::future<void> tidying_;
};

}  // namespace derate
