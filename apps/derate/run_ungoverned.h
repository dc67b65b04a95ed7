// A command that sees no GPU: it runs, and Derate says so.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/child_process.h"
#include "base/log.h"
#include "command_options.h"

namespace derate::cli {

struct UngovernedHooks {
  std::function<void(pid_t pid)> started = [](pid_t) {};
  std::function<void()> alive = [] {};  // several times a second, while the command runs
};

// Runs the command with an account of no GPU, which says `why`. Its exit code. Errors: the command
// could not be tried, or the account's file not be made.
Result<int> run_ungoverned(const RunOptions& options, const std::optional<RunAs>& as,
                           const std::string& why, const UngovernedHooks& hooks, const Log& log);

}  // namespace derate::cli
