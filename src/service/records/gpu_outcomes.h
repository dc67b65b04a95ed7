// What a command did to each GPU that it named, and the answer that tells it (docs/control.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "core/gpu_id.h"

namespace derate {

struct GpuOutcome {
  GpuId id;
  Result<std::string> done;  // a sentence that names the GPU, as the error does
};

// An OutcomesAnswer. The exit code is the first failure's where none went well, else
// exit_code::kPartial.
nlohmann::ordered_json outcomes_json(std::span<const GpuOutcome> outcomes);

}  // namespace derate
