// The registry of jobs and trials as rows of the file that keeps it, and back.
#pragma once

#include <string>
#include <vector>

#include "store/tune_store.h"
#include "tune/trial_registry.h"

namespace derate {

TuneJobRow row_of(const JobEntry& job);
TuneTrialRow row_of(const TrialEntry& trial);

// Everything that was kept into `registry`; what cannot be read is left out, and told.
std::vector<std::string> restore_trials(TrialRegistry& registry, const TuneRows& rows, Instant now);

// Rows of what has changed, as it is now.
TuneChanges rows_of(const TrialRegistry& registry, const TrialChanges& changes);
// All there is, for a file that was begun anew.
TrialChanges all_of(const TrialRegistry& registry);

}  // namespace derate
