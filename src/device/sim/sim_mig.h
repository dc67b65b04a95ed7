// MIG on simulated GPUs: the profiles that a chip can be cut into.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/tenancy.h"
#include "device/sim/sim_chip.h"

namespace derate {

struct MigProfile {
  const char* name;  // "1g.18gb"
  int slices, memory_slices, multiprocessors;
  double memory_gigabytes;
};

// The whole GPU comes last; empty for a chip without MIG.
std::span<const MigProfile> mig_profiles(const SimChip& chip);

// Instances by their profiles' names or the part before the dot: "3g,2g,1g,1g"; "" is MIG mode with
// none. Ids count from 1 (NVML's order), UUIDs are made of `first` and the id: another `first`,
// other instances. Errors: not_supported for a chip without MIG, invalid_argument naming the part
// and the profiles there are, or what does not fit.
Result<std::vector<GpuInstance>> make_instances(const SimChip& chip, std::string_view layout,
                                                int first = 0);

}  // namespace derate
