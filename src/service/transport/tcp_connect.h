// A connection to an HTTP server on the network.
#pragma once

#include "base/clock.h"
#include "base/http_url.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

// A stream socket that does not block. Errors: not_found, of the last address that was tried. To
// look a name up can take longer than until `end`.
Result<UniqueFd> connect_to(const HttpTarget& target, Clock& clock, Instant end);

}  // namespace derate
