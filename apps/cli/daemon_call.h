// Asking the daemon over its client socket.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace derate::cli {

struct DaemonLine {
  std::string socket;  // where one listens
};

// The first of client_sockets() that answers. Errors: not_found when no daemon runs.
Result<DaemonLine> find_daemon();
// The answer's fields. Errors: those that the daemon tells, by their exit code; not_found when it
// is gone, io, gpu_stuck.
Result<nlohmann::ordered_json> ask(const DaemonLine& line, const std::string& request);

}  // namespace derate::cli
