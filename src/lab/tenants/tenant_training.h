// The runs that published methods learn from: each workload of the tenant worlds alone, on the
// whole GPU and on an instance, at several levels of load, as a profiling run would measure it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attrib/training.h"
#include "lab/tenants/tenant_world.h"

namespace derate {

// With the scenario's saturation and hidden unit; operand data as of the profiling run (factor 1).
// Errors: those of the workloads.
Result<std::vector<TrainingRun>> profile_workloads(const TenantScenario& scenario);

// Of those runs the ones that a study with four kernels would have.
std::vector<TrainingRun> four_of(std::span<const TrainingRun> runs);

}  // namespace derate
