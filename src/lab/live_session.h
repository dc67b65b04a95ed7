// Sessions of an experiment in real time, as processes: derated runs together with simulated jobs
// on a served GPU, or with commands on this machine's GPU, to which it never writes.
#pragma once

#include <string>

#include "lab/run_plan.h"

namespace derate {

struct RealGpu {
  std::string name, uuid;
};

// In place served. The plan outlives it.
SessionRunner on_served_gpus(const Plan& plan);
// In place real: every policy in a dry run.
SessionRunner on_real_gpu(const Plan& plan, const RealGpu& gpu);

}  // namespace derate
