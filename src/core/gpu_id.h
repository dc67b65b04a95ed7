// Names of a GPU: the three that nvidia-smi accepts (index, UUID, PCI bus id), and how a user's
// choice picks GPUs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

struct GpuId {
  int index = 0;           // NVML's order on this machine; not stable across reboots
  std::string uuid;        // "GPU-...": the key of everything that is kept
  std::string pci_bus_id;  // "00000000:65:00.0"; empty for a GPU without a bus
  std::string name;        // the product's name as the driver gives it

  bool operator==(const GpuId&) const = default;
};

// UUIDs of simulated GPUs begin like this, in this process or behind NVML's interface: what was
// learned on them is never taken for real.
inline constexpr std::string_view kSimulatedUuid = "GPU-51a00000-0000-0000-0000-";
inline bool is_simulated(const GpuId& id) { return id.uuid.starts_with(kSimulatedUuid); }

// Returns the positions in `gpus` of the GPUs in `choice` (core/gpu_selection.h): indices and
// ranges, UUIDs (a unique prefix is enough), PCI bus ids. An empty choice, or "all", is all of
// them. Errors: not_found names the part that matches no GPU, invalid_argument a part that matches
// several or is not a name of a GPU.
Result<std::vector<int>> select_gpus(std::span<const GpuId> gpus, std::string_view choice);

}  // namespace derate
