// `derate run -- CMD` for a user without the right to set clocks: derated governs the command's
// GPUs.
#pragma once

#include "base/log.h"
#include "base/result.h"
#include "command_options.h"
#include "service/transport/daemon_call.h"

namespace derate::cli {

// Gives the command's exit code. Errors: what the daemon refuses, and why; then the command has not
// been started.
Result<int> run_at_daemon(const RunOptions& options, const DaemonLine& daemon, const Log& log);

}  // namespace derate::cli
