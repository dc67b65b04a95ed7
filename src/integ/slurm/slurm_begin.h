// The begin of a Slurm job on this node: its GPUs by UUID, with proof, and whether Slurm sets their
// clocks itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "integ/slurm/slurm_job.h"
#include "integ/slurm/slurm_node.h"

namespace derate {

struct SlurmBegin {
  SlurmJob job;
  std::vector<std::string> gpus;  // UUIDs; empty: the job has none, or they are not proven
  std::string hands_off;          // why nobody may govern them; empty: they may be governed
};

// `node` and `see` are called for a job with GPUs alone.
SlurmBegin slurm_begin(SlurmJob job, const std::function<Result<SlurmNode>()>& node,
                       const SeeGpus& see);

}  // namespace derate
