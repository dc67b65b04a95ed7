// The GPUs of a command, by the environment that its scheduler or its user has set.
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
// Whether an error of NVML means that no driver is here, so that numbers have no meaning.
bool has_no_driver(const Error& error);
// Queries the driver of this process.
using SeeGpus = std::function<Result<SeenGpus>()>;

struct OwnGpus {
  std::vector<std::string> uuids;  // empty: the command sees no GPU
  std::string variable, value;     // the variable that names them
};

// Uses CUDA_VISIBLE_DEVICES as the driver reads it (integ/cuda_visible.h), then SLURM_STEP_GPUS,
// then SLURM_JOB_GPUS. Of these two only the count is used: if this process sees no more GPUs than
// that, and all of them answer, it sees its own; else which they are is not known. Whole UUIDs in
// CUDA_VISIBLE_DEVICES need no driver. An invalid CUDA_DEVICE_ORDER hides every GPU.
// Empty: no variable is set; `see` is not called.
// Errors: those of `see`; invalid_argument if the GPUs are not known.
Result<std::optional<OwnGpus>> own_gpus(const SeeGpus& see,
                                        const Environment& environment = environment_variable);

}  // namespace derate
