// derate tune run with a daemon: runs a job once, with the batch size chosen from its history;
// tries another where it does not reach its target.
#pragma once

#include "command_options.h"

namespace derate::cli {

// The command's exit code; Derate's own failures have the code that env(1) has for them.
Result<int> run_trials(const TuneRunOptions& options);

}  // namespace derate::cli
