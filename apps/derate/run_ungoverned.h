// Runs a command that sees no GPU, and reports that nothing is governed.
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

// Runs the command. Its account has no GPU and gives `why`. Returns the command's exit code.
// Errors: the command could not be started, or the account's file not be made.
Result<int> run_ungoverned(const RunOptions& options, const std::optional<RunAs>& as,
                           const std::string& why, const UngovernedHooks& hooks, const Log& log);

}  // namespace derate::cli
