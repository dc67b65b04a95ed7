// The MIG instances that a GPU is cut into.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/tenancy.h"
#include "device/nvml/nvml_library.h"

namespace derate {

// What the GPU can be cut into, and so what it has as a whole; fixed while MIG mode is on. All
// empty where the driver does not tell (before R510).
struct MigProfiles {
  std::vector<nvml::InstanceProfile> list;
  // Of the largest one, the whole GPU. NVML has no call for the memory slices of a GPU; NVIDIA's
  // MIG guide has 8 for those with 7 compute slices, and as many as those for the others.
  std::optional<int> slices, memory_slices, multiprocessors;
  double memory_mib = 0;
};
// Errors: gpu_lost.
Result<MigProfiles> read_mig_profiles(const NvmlLibrary& library, nvml::Device device);

// What NVML calls a MIG device: a compute instance of a GPU instance.
struct MigDevice {
  unsigned int gpu_instance, compute_instance;
  nvml::Device handle;
  std::string uuid;
};

struct MigTopology {
  std::vector<GpuInstance> instances;  // ascending by id; without activity
  std::vector<MigDevice> devices;      // ascending by both ids
};

// Takes 50 to 100 ms, as others measured. Without the rights of root an instance that has no
// compute instance is not seen. Empty where the driver has no such calls. Errors: no_permission,
// gpu_lost, query_failed: half a list would pass for a whole one.
Result<MigTopology> read_mig_topology(const NvmlLibrary& library, nvml::Device device,
                                      const MigProfiles& profiles);

// Lists the MIG devices (NVML's term) of a GPU, ascending by both ids. Empty if the driver has no
// such calls or MIG is off. Errors: those of read_mig_topology().
Result<std::vector<MigDevice>> list_mig_devices(const NvmlLibrary& library, nvml::Device device);

// The UUID of the GPU that has the MIG device of that UUID. Errors: not_found, query_failed.
Result<std::string> gpu_of_mig_device(const NvmlLibrary& library, const std::string& uuid);

// False when a MIG device went or is another one by now. Ids and handles are used again, UUIDs are
// not. New ones are not noticed.
bool still_there(const NvmlLibrary& library, const MigTopology& topology);

}  // namespace derate
