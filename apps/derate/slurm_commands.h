// Slurm's own commands, as the verbs of `derate slurm` run them.
#pragma once

#include <string>
#include <vector>

#include "api/requests.h"
#include "base/result.h"
#include "base/units.h"
#include "integ/slurm/job_comment.h"
#include "integ/slurm/slurm_node.h"

namespace derate::cli {

// slurmd is in no user's PATH on most systems.
void add_system_folders();
// Its standard output. Errors: those of running it; io where it fails, with the line that it wrote.
Result<std::string> slurm_command(const std::vector<std::string>& command, Duration patience);
SlurmNodeQuery slurm_node_query(const std::string& node);
// Of one node.
JobEnergy energy_of(const AllocationView& account);

}  // namespace derate::cli
