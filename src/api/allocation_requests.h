// Requests and answers of allocations, GPUs that a scheduler has given to a job, as plain structs:
// allocation-begin, allocation-end and allocations (api/requests.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace derate {

// A scheduler's job, as its scheduler names it.
struct SchedulerJob {
  std::string scheduler = "slurm";
  std::string id;     // "4711"; unique on this machine while the job has GPUs here
  std::string array;  // "4700_11"; empty: the job is no task of an array
  std::int64_t uid = 0;
  std::string user, account, partition, cluster, node;  // empty: not known
  bool operator==(const SchedulerJob&) const = default;
};

struct AllocationBegin {
  static constexpr const char* kOperation = "allocation-begin";
  SchedulerJob job;
  std::vector<std::string> gpus;     // UUIDs; empty: `hands_off` says why they are not known
  std::vector<std::int64_t> groups;  // of the user
  std::optional<bool> governed;      // what the user requested; empty: nothing
  std::optional<double> delta;       // the most performance that may be lost
  std::string policy;                // empty: the configuration's
  std::string hands_off;             // why none of the GPUs is governed, by anybody
  bool operator==(const AllocationBegin&) const = default;
};
struct AllocationEnd {
  static constexpr const char* kOperation = "allocation-end";
  std::string scheduler = "slurm";
  std::string id;
  bool operator==(const AllocationEnd&) const = default;
};
struct AllocationList {
  static constexpr const char* kOperation = "allocations";
  std::string id;  // of a job; empty: all
  bool operator==(const AllocationList&) const = default;
};

// --- answers -------------------------------------------------------------------------------------

struct AllocationGpuView {
  int index = 0;
  std::string uuid, name;
  bool governed = false;  // by what the job requested, now
  std::string why;        // it is not
  std::optional<double> energy_joules, mean_power_watts;
  std::string source;                    // of the energy: counter, mixed, integrated or none
  double uncovered_seconds = 0;          // of the job's time, that the energy is not of
  std::optional<double> shared_seconds;  // in which other jobs had it, too; the energy is split
  // As estimated, of `estimated_seconds` of the job's time; empty: not known.
  std::optional<double> saved_joules, saved_sd_joules, estimated_seconds;
  std::optional<double> promised_performance_ratio, expected_performance_ratio;
  std::optional<bool> promise_kept;  // by those two; empty: nothing was promised, or is known
  bool operator==(const AllocationGpuView&) const = default;
};
struct AllocationView {
  SchedulerJob job;
  std::string policy;  // that the job requested; empty: none
  double begun_unix_seconds = 0, time_seconds = 0;
  bool ended = false;
  bool settled = false;  // the energy changes no more
  std::string ended_by;  // the epilog, or what else ended it
  std::optional<double> energy_joules;
  std::optional<bool> promise_kept;  // on all GPUs of which it is known
  std::string hands_off;
  std::vector<AllocationGpuView> gpus;
  bool operator==(const AllocationView&) const = default;
};
// The time in which no job has the GPU, since the first job that this daemon has seen.
struct NoJobView {
  int index = 0;
  std::string uuid;
  std::optional<double> energy_joules;
  double time_seconds = 0;
  bool operator==(const NoJobView&) const = default;
};

struct AllocationsAnswer {
  std::vector<AllocationView> allocations;
  std::vector<NoJobView> no_job;
  bool operator==(const AllocationsAnswer&) const = default;
};

}  // namespace derate
