// A record as one line of JSON: `--records FILE`, and what goldens compare. Missing fields are
// absent, units are in the names.
#pragma once

#include <string>

#include "core/record.h"

namespace derate {

// Without a line end. Times are seconds since `start`.
std::string record_json(const Record& record, Instant start);

}  // namespace derate
