// The GPUs that are a command's own, by the environment that its scheduler or its user has set.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace derate {

// getenv(3), or of a test. Empty: there is no such variable.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> environment_variable(const char* name);

struct OwnGpus {
  std::string choice;    // as open_gpus() takes it
  std::string variable;  // that says so
};

// By CUDA_VISIBLE_DEVICES (indices, UUIDs or their beginnings, MIG-GPU-UUID/...; what follows an
// index below 0 is not visible; a MIG instance's own UUID is left to who opens GPUs), else by
// SLURM_JOB_GPUS ("0,2-3"). Empty: neither is set. Errors: not_found where the variable hides every
// GPU; invalid_argument for what is neither.
Result<std::optional<OwnGpus>> own_gpus(const Environment& environment = environment_variable);

}  // namespace derate
