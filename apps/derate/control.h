// Requests of operators and admins to the running daemon, over HTTP or the control socket.
#pragma once

#include <string>

#include "api/requests.h"
#include "base/clock.h"
#include "base/result.h"

namespace derate::cli {

// The answer's text, also one that tells of failures (daemon_answer() reads it): over HTTP, or
// where that is switched off over the socket that is root's alone. Errors: not_found when no daemon
// runs; no_permission, io, gpu_stuck.
Result<std::string> ask_operators(const AnyRequest& request);

// The same over the control socket alone, for what is not served over HTTP.
Result<std::string> ask_control(const AnyRequest& request, Duration patience);

}  // namespace derate::cli
