// Loss of performance over a stretch of a job: a promise over the whole job may be kept while
// minutes of it are slow.
#pragma once

#include <optional>

#include "core/job_record.h"
#include "device/sim/sim_workload.h"

namespace derate {

// The largest loss over a stretch of so much work (seconds at the highest clock), against the
// highest clock, from the clock at the job's ticks. Of work of one phase, or of one that turns into
// another. Empty: it has other phases, or less was done.
std::optional<double> worst_stretch_loss(const JobRecord& job, const Workload& workload,
                                         const SimChip& chip, Duration stretch);

}  // namespace derate
