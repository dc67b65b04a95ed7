// A command that runs while GPUs are governed: by a policy (`derate run`) or tuned for it
// (`derate tune run`).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/child_process.h"
#include "command_options.h"
#include "govern/fleet/tuned_gpus.h"

namespace derate::cli {

// `tuning`: of the GPUs that the options name, its own list is left empty; empty: by the policy.
// Gives the command's exit code, or one of env(1)'s for a failure of Derate, which it has told.
int run_command(const RunOptions& options, const std::optional<TuningPlan>& tuning);

// Signals that were sent to us go on to the command; those of the terminal it has got by itself.
void pass_signals_on(const Child& child);

// What tuning came to, for people and as JSON.
std::string tuning_text(const TunedRun& run, Instant now);
nlohmann::ordered_json tuning_json(const TunedRun& run, Instant now);

}  // namespace derate::cli
