// Work that changes as it goes: mixes of a chip's own workloads in phases. The work of a phase is
// measured; its length is assumed, and is marked so.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/sim/sim_workload.h"

namespace derate {

struct MixInfo {
  const char* name;
  const char* summary;
};

// All of them, in the order of the documentation.
std::span<const MixInfo> mixes();

// The mix on this chip, made of its workload that follows the clock most and the one that does so
// least. Errors: not_found, naming the mixes there are.
Result<Workload> make_mix(const std::string& name, const SimChip& chip);

// The work on so many GPUs in step: rounds of 0.5 s where it has no phases of its own, after each
// the wait for the slowest, then 25 ms of exchange. On one it is as it was; a job on several keeps
// its rounds.
void spread(Workload& workload, int gpus);

// A for the first part of `work`, then for `change` a mixture that turns into B, then B for as long
// as A. `change`: at most `work`.
Workload change_pair(const Workload& a, const Workload& b, Duration work, Duration change);

// A then B at half duty: of each, half a period's worth of work at the highest clock.
Workload phase_pair(const Workload& a, const Workload& b, Duration period);

}  // namespace derate
