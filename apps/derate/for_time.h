// How long a verb is to measure.
#pragma once

#include <string>

#include "base/result.h"
#include "base/units.h"

namespace derate::cli {

// The time of `--for`, "10", "10s", "2m", "1h"; the longest there is for "".
// Errors: invalid_argument.
Result<Duration> parse_for(const std::string& text);

}  // namespace derate::cli
