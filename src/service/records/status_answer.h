// The answer to `status`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "service/records/snapshot.h"

namespace derate {

// What the state file has, of the GPUs that `gpus` names. Errors: not_found, invalid_argument.
Result<nlohmann::ordered_json> status_answer(const Snapshot& snapshot, const std::string& gpus);

}  // namespace derate
