// Run of one job on one simulated GPU under one policy, in virtual time, with its true time and
// energy: the instrument under the figures of lab/compare.h.
#pragma once

#include <cstdint>

#include "device/sim/sim_gpu.h"
#include "govern/governor.h"
#include "policy/policy.h"

namespace derate {

struct SimJobSpec {
  const SimChip* chip = nullptr;
  const Workload* workload = nullptr;
  const PolicyInfo* policy = nullptr;
  ParamValues params;
  Duration work = std::chrono::seconds(120);  // reference work: seconds at the highest clock
  // The policy runs on the idle GPU for that long before the job arrives, plus up to one second and
  // up to `arrival_spread` drawn from the seed.
  Duration idle_before = std::chrono::seconds(20);
  Duration arrival_spread = std::chrono::seconds(0);
  GovernorOptions governor;
  SimOptions gpu;  // its seed is the job's
};

// In truth, from the first to the last instant of the job; start-up and probing included.
struct SimJobResult {
  Duration time{};
  Joules energy{};
  Joules sensed_energy{};  // by the GPU's own counter, as a user would have seen it
  int clock_writes = 0;    // during the job
  Duration simulated{};    // the idle time before included

  Watts mean_power() const { return energy / time; }
};

// Errors: those of the policy's creation; gpu_stuck when the job makes no progress.
Result<SimJobResult> run_sim_job(const SimJobSpec& spec);

}  // namespace derate
