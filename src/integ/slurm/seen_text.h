// A node's GPUs as JSON, from the process that has called the driver to the hook that has started
// it. A call that hangs in the driver cannot be ended, and must not keep the hook.
#pragma once

#include <string>

#include "base/result.h"
#include "core/seen_gpu.h"

namespace derate {

// Without instances.
std::string seen_text(const SeenGpus& seen);
// Errors: bad_data.
Result<SeenGpus> parse_seen(const std::string& text);

}  // namespace derate
