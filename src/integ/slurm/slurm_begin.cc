#include "integ/slurm/slurm_begin.h"

#include <utility>

#include "integ/slurm/job_gpus.h"

namespace derate {
namespace {

Result<std::vector<std::string>> proven(const SlurmJob& job, const SlurmNode& node,
                                        const SeeGpus& see) {
  return job_gpus(job.gpus, node.minors, TRY(see()), node.constrained);
}

}  // namespace

SlurmBegin slurm_begin(SlurmJob job, const std::function<Result<SlurmNode>()>& node,
                       const SeeGpus& see) {
  SlurmBegin out{.job = std::move(job), .gpus = {}, .hands_off = {}};
  if (out.job.gpus.empty()) return out;
  const auto known = node();
  const auto gpus =
      known.ok() ? proven(out.job, *known, see) : Result<std::vector<std::string>>(known.error());
  if (gpus.ok())
    out.gpus = *gpus;
  else
    out.hands_off = gpus.error().message;
  if (known.ok() && !known->default_frequency.empty())
    out.hands_off = "Slurm sets the GPUs' clocks (GpuFreqDef=" + known->default_frequency + ")";
  return out;
}

}  // namespace derate
