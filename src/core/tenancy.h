// The tenants that share one GPU: its MIG instances and the processes on it, with the sensors'
// readings of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/sample.h"

namespace derate {

// A MIG GPU instance. Its id is given out again after it is destroyed; its UUID (of its first
// compute instance) is not.
struct GpuInstance {
  int id = 0;
  std::string uuid;     // "MIG-..."; empty while it has no compute instance
  std::string profile;  // "1g.18gb"
  int slices = 0;       // of the GPU's compute slices
  int memory_slices = 0;
  int multiprocessors = 0;
  std::optional<double> memory_bytes;
  // The mean since it was last asked, in shares of the instance's own units. Empty where the GPU
  // has no counters for its parts (before Hopper), and at the first asking.
  Activity activity;

  bool operator==(const GpuInstance&) const = default;
};

struct Tenancy {
  // The board at the same moment: energy counter, clock, temperature, throttle reasons, and its own
  // activity since tenancy was last asked.
  Sample board;
  // Empty without MIG, and for MIG with no instance: `mig` tells which.
  std::vector<GpuInstance> instances;  // ascending by id
  // Ascending by pid; with MIG a row for each instance that a process is on.
  std::vector<GpuProcess> processes;
  bool mig = false;
  // Of the whole GPU, as MIG counts them; the instances may be fewer. Empty without MIG.
  std::optional<int> slices, memory_slices, multiprocessors;

  bool operator==(const Tenancy&) const = default;
};

}  // namespace derate
