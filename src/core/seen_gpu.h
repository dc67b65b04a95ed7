// The GPUs of this machine as a process's own driver shows them: in a Slurm job or a container
// these can be some of the machine's alone, with numbers of their own.
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
  GpuId id;                             // its index is that of this process's own NVML
  std::optional<int> minor;             // N of /dev/nvidiaN, the same in every view
  bool mig = false;                     // its MIG mode is on
  std::vector<SeenInstance> instances;  // then: those that this process may use
  bool instances_unread = false;        // there can be others
};

// A GPU that this process may not use (a device cgroup) is in neither list.
struct SeenGpus {
  std::vector<SeenGpu> gpus;
  std::vector<int> silent;  // NVML's indices of GPUs that it counts and that give no UUID
  // While it lives the driver stays open, so that opening the GPUs next does not start it anew.
  std::shared_ptr<const void> driver = {};
};

}  // namespace derate
