// Trials and jobs as clients are shown them.
#pragma once

#include "api/requests.h"
#include "tune/trial_registry.h"

namespace derate {

// Without its token, and without what happens to its knob: TrialMeters knows that.
TrialView trial_view(const TrialEntry& trial, const TrialRegistry& book);
JobView job_view(const JobEntry& job, const TrialRegistry& book);

}  // namespace derate
