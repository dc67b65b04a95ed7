// The account of a job as a line of JSON in Slurm's AdminComment, which `sacct` shows, and what
// `sacct` says of jobs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

// A job's energy on one node, or summed over several. Empty: not known of at least one of its GPUs.
struct JobEnergy {
  std::optional<double> joules;
  double gpu_seconds = 0;  // summed over GPUs
  // Against the highest clock, as the policies estimate it, and the standard deviation; empty:
  // nothing was estimated.
  std::optional<double> saved_joules, saved_sd_joules;
  std::optional<double> promised;  // the highest of its GPUs' promises, a ratio
  std::optional<bool> kept;        // on all GPUs of which it is known
  int gpus = 0;
  int nodes = 0, of_nodes = 0;  // that it is the sum of, and that the job had
  int runs = 1, restart = 0;    // of a requeued job: runs in the sum, and the number of the last

  // The energy of another node of the same job.
  void add(const JobEnergy& more);
  bool operator==(const JobEnergy&) const = default;
};

// {"derate":{"joules":...}}, without a line end. Stored by sacctmgr, it has a backtick for each
// quote.
std::string comment_line(const JobEnergy& energy);
// The last such line of a comment; empty: there is none.
std::optional<JobEnergy> energy_in(std::string_view comment);
// The comment with that line instead of its own last one, behind all other lines.
std::string with_line(std::string_view comment, const std::string& line);

// A job as sacct prints it with --parsable2 and --format=kSacctFormat.
inline constexpr const char* kSacctFormat =
    "JobIDRaw,JobID,User,Account,Partition,State,ElapsedRaw,NNodes,AdminComment";
struct SacctJob {
  std::string id;     // "4711"
  std::string shown;  // "4700_11" for a task of an array
  std::string user, account, partition, state;
  std::int64_t elapsed_s = 0, nodes = 0;
  std::string comment;
};
// A comment may have several lines. Errors: bad_data.
Result<std::vector<SacctJob>> parse_sacct(std::string_view text);

// The runs of one job among those: `energy`, of the comment that has the most runs.
struct SacctRuns {
  std::optional<SacctJob> newest;  // empty: sacct does not have the job
  std::optional<JobEnergy> energy;
};
SacctRuns runs_of(const std::vector<SacctJob>& jobs, const std::string& id);
// The newest run's energy with that of the runs before it. A run that is in the sum already is not
// added again.
JobEnergy with_runs_before(JobEnergy run, const std::optional<JobEnergy>& before);

// Joins the shares of a job's nodes, so that its comment has one writer. Each node puts a file into
// a folder that all nodes have, and that nobody but its owner, the caller, may write to.
struct NodeShares {
  std::string folder;  // empty: this node's share alone counts
  std::string name;    // of the job, unique in the folder: "cluster-4711-0"
  std::string node;
  int nodes = 1;  // of the job
};
// Writes this node's share. Errors: io; no_permission, also for a folder that others may write to.
Result<void> put_share(const NodeShares& shares, const JobEnergy& energy);
// The sum, once all nodes' shares are there, or at once if `late`; empty: not yet, or another node
// has it. Only one caller of all nodes gets it. Errors: io, no_permission.
// Files of other jobs that are older than a day by `now` go.
Result<std::optional<JobEnergy>> claim_sum(const NodeShares& shares, bool late, WallTime now);

}  // namespace derate
