// The GPUs of this machine as a process's own driver shows them. In a Slurm job or a container
// these may be only some of the machine's GPUs, with other indices.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/gpu_id.h"

namespace derate {

// A compute instance of a GPU under MIG.
struct SeenInstance {
  std::string uuid;  // "MIG-..."
  int gpu_instance = 0, compute_instance = 0;
};

struct SeenGpu {
  GpuId id;                             // its index is the one in this process's NVML
  std::optional<int> minor;             // N of /dev/nvidiaN, the same in every view
  bool mig = false;                     // MIG mode is on
  std::vector<SeenInstance> instances;  // with MIG mode on: the instances that this process may use
  bool instances_unread = false;        // the list may be incomplete
};

// A GPU that a device cgroup denies to this process is in neither list.
struct SeenGpus {
  std::vector<SeenGpu> gpus;
  std::vector<int> silent;  // NVML's indices of GPUs that return no UUID of their own
  // Keeps the driver open, so that opening the GPUs next does not start it anew.
  std::shared_ptr<const void> driver = {};
};

}  // namespace derate
