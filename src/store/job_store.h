// Jobs of a scheduler that have ended on this machine, with the energy of their GPUs, in one SQLite
// file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

class SqliteFile;

struct JobRow {
  std::string scheduler, cluster, job, array;  // "4711"; `array`: "4700_11", empty: none
  std::string user, account, partition, node;  // empty: not known
  std::int64_t uid = 0;
  WallTime begun{}, ended{};
  std::optional<double> energy_joules;  // of all its GPUs here; empty: one was not measured
  std::string document;  // JSON of all that is known of it (api/allocation_requests.h)

  bool operator==(const JobRow&) const = default;
};

// Empty members allow everything.
struct JobFilter {
  std::optional<WallTime> from, to;  // ended in [from, to)
  std::string job, user, account;
};

// For one thread. A killed process loses nothing of what was added, a power cut the newest.
class JobStore {
 public:
  // With one more the oldest goes.
  static constexpr std::int64_t kMostJobs = 50'000;
  // That a file was set aside (bad_data).
  using OnError = std::function<void(const Error&)>;

  // Opened when it is first needed, and made; a file that is broken, or not ours, becomes
  // PATH.aside-TIME (sqlite_file.h).
  explicit JobStore(std::string path, OnError on_error = {}, std::int64_t most = kMostJobs);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // A job that runs again on this machine has a row each time.
  // Errors: no_permission, busy, io, bad_data for a file that a newer version wrote.
  Result<void> add(const JobRow& row);

 private:
  std::unique_ptr<SqliteFile> file_;
  std::int64_t most_;
};

// In the order in which they ended. Reads only, also while somebody writes.
// Errors: not_found where no job was ever kept, no_permission, busy, io, bad_data.
Result<std::vector<JobRow>> read_jobs(const std::string& path, const JobFilter& filter);

}  // namespace derate
