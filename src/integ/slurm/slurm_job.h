// A job as the environment of Slurm's prolog and epilog describes it. Its user chooses some of the
// values, so all of them are checked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "integ/own_gpus.h"

namespace derate {

// The user's --derate, --derate-policy and --derate-job.
struct SlurmWish {
  std::optional<bool> governed;   // empty: no word of it, the node's configuration decides
  std::optional<Fraction> delta;  // the most performance that the job may lose
  std::string policy;             // empty: the configuration's
  std::string tuned_as;           // the job that recurs; empty: none
  bool operator==(const SlurmWish&) const = default;
};

struct SlurmJob {
  std::int64_t id = 0;  // of the job on this cluster; each task of an array has its own
  std::string array;    // "4711_3": the third task of array 4711; empty: no array
  uid_t uid = 0;
  std::string user, account, partition, cluster;  // the account is empty without accounting
  std::string node;                               // the name of this node
  int nodes = 1;                                  // of the job
  int restart = 0;                                // how often it was requeued
  std::vector<int> gpus;  // places in the node's list of GPUs (integ/slurm/gres_list.h), ascending
  SlurmWish wish;
  std::string bad_wish;  // why the user's options are ignored; empty: they are not
  bool operator==(const SlurmJob&) const = default;
};

// "on", "off", or a loss such as "0.1". Errors: invalid_argument.
Result<SlurmWish> parse_wish(const std::string& text);

// SLURM_JOB_ID alone. Errors: invalid_argument.
Result<std::string> slurm_job_id(const Environment& environment = environment_variable);
// How many nodes "n[1-3,7],login" names; empty: it is no list of Slurm's.
std::optional<int> count_of_nodes(std::string_view list);
// Errors, of what Slurm itself sets: invalid_argument names the variable, a part of its value, and
// what is allowed.
Result<SlurmJob> slurm_job(const Environment& environment = environment_variable);

}  // namespace derate
