// Models of work in one SQLite file, for every process that governs GPUs of this machine. It is a
// memory, not a ledger: whatever is wrong with the file, governing goes on without.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/model_cache.h"

namespace derate {

class SqliteFile;

// Whether every number is finite, and covariances are of their means' size, without negative
// variances: others are neither kept nor given.
bool is_sound(const PhaseModel& model);

// For one thread, which is not a control loop's: QueuedModelCache calls it beside that. No call
// waits for another process for more than 0.1 s. The disk is waited for when the file is made, at
// the first recall, and when it is closed; in between a thread of its own does that.
class SqliteModelCache final : public ModelCache {
 public:
  static constexpr std::size_t kMostOfAChip = 32;  // the oldest go first
  // Older ones are not given. They go by number alone: a clock in the future deletes nothing.
  static constexpr Duration kOldest = std::chrono::hours(30 * 24);
  static constexpr Duration kWriteEvery = std::chrono::seconds(10);  // of one model, at most

  // What failed, once until it works again; and that a file was set aside (bad_data).
  using OnError = std::function<void(const Error&)>;

  // Opened when it is first needed; a file that is broken, or not ours, becomes PATH.aside-TIME
  // (sqlite_file.h).
  // `clock` outlives it.
  SqliteModelCache(std::string path, const Clock& clock, OnError on_error = {});
  ~SqliteModelCache() override;  // writes what waits
  SqliteModelCache(const SqliteModelCache&) = delete;
  SqliteModelCache& operator=(const SqliteModelCache&) = delete;

  // Those of this form (kModelForm) and sound, with their age.
  std::vector<PhaseModel> recall(const std::string& chip) override;
  // A model that was written a moment ago waits in memory until a later call. 0 besides for a model
  // that is not sound, or of no chip.
  std::int64_t keep(const PhaseModel& model) override;

  // For people: of all chips, the newest first. Nothing is made or set aside.
  // Errors: not_found, no_permission, bad_data, busy, io.
  Result<std::vector<PhaseModel>> all();
  // Errors: the same; not_found names the one that is not there, and none is forgotten then.
  Result<void> forget(const std::vector<std::int64_t>& ids);
  // How many there were, those of other forms included. Errors: the same.
  Result<int> forget_all();

 private:
  // A model in memory: as last written, or newer and waiting.
  struct Recent {
    Instant written{};
    std::optional<PhaseModel> waiting;
    WallTime kept{};
  };
  void write_waiting(Duration at_least);
  std::int64_t write(const PhaseModel& model, WallTime kept);
  void report_first(const Result<void>& outcome);
  void report(const Error& error) const;

  std::string path_;
  const Clock& clock_;
  OnError on_error_;
  std::unique_ptr<SqliteFile> file_;
  std::map<std::int64_t, Recent> recent_;
  bool failing_ = false;
};

}  // namespace derate
