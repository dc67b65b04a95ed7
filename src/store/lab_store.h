// An experiment's results in one SQLite file: its own text, every job, every tick. A session is
// written whole or not at all, so that a run that was killed goes on where it stopped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/job_record.h"

namespace derate {

struct StoredJob {
  std::int64_t id = 0;
  SessionKey session;
  int position = 0;  // in its session's order
  JobRecord job;     // without ticks and remarks
};

class LabStore {
 public:
  // Made when it is not there. Errors: io, no_permission, bad_data (not such a file).
  static Result<LabStore> create(const std::string& path);
  // To read only. Errors: not_found besides.
  static Result<LabStore> open(const std::string& path);
  LabStore(LabStore&&) noexcept;
  LabStore& operator=(LabStore&&) noexcept;
  ~LabStore();

  // What was run, and by whom: "experiment" (TOML), "version", "gpu" and so on; empty when not set.
  Result<std::string> note(const std::string& key) const;
  Result<void> set_note(const std::string& key, const std::string& value);

  // Errors: io, also when the disk is full; nothing of the session is kept then.
  Result<void> add(const SessionKey& key, const std::vector<JobRecord>& jobs);
  Result<std::vector<SessionKey>> sessions() const;

  // In the order in which they were added.
  Result<std::vector<StoredJob>> jobs() const;
  // With its ticks and remarks. Errors: not_found.
  Result<StoredJob> job(std::int64_t id) const;

 private:
  struct Database;
  explicit LabStore(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace derate
