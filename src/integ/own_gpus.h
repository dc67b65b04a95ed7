// The GPUs that are a command's own, by the environment that its scheduler or its user has set.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/seen_gpu.h"

namespace derate {

// getenv(3), or of a test. Empty: there is no such variable.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> environment_variable(const char* name);
// An error of NVML that says that there is no driver here, so no number means anything.
bool has_no_driver(const Error& error);
// Asks the driver of this process.
using SeeGpus = std::function<Result<SeenGpus>()>;

struct OwnGpus {
  std::vector<std::string> uuids;  // empty: the command sees no GPU
  std::string variable, value;     // that says so
};

// By CUDA_VISIBLE_DEVICES as the driver reads it (integ/cuda_visible.h), else by SLURM_STEP_GPUS,
// else by SLURM_JOB_GPUS, whose numbers are the node's: those of the device files /dev/nvidiaN;
// else all that this process sees, if these are no more. Whole UUIDs in CUDA_VISIBLE_DEVICES need
// no driver. Empty: none of them is set; then `see` is not called. Errors: those of `see`;
// invalid_argument where it is not known which GPUs are meant.
Result<std::optional<OwnGpus>> own_gpus(const SeeGpus& see,
                                        const Environment& environment = environment_variable);

}  // namespace derate
