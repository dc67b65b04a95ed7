#include "integ/slurm/job_gpus.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {
namespace {

Error unproven(const std::string& why) { return Error{Errc::not_supported, why}; }

// The one GPU with that minor number.
Result<const SeenGpu*> of_minor(int minor, const SeenGpus& seen) {
  const SeenGpu* out = nullptr;
  for (const SeenGpu& gpu : seen.gpus) {
    if (gpu.minor != minor) continue;
    if (out != nullptr) return unproven(fmt::format("two GPUs have the minor number {}", minor));
    out = &gpu;
  }
  if (out == nullptr) return unproven(fmt::format("no GPU here has the minor number {}", minor));
  return out;
}

// As CUDA counts them with CUDA_DEVICE_ORDER=PCI_BUS_ID. Empty: a bus id is missing, or is there
// twice.
std::vector<const SeenGpu*> by_bus(const SeenGpus& seen) {
  std::vector<const SeenGpu*> out;
  for (const SeenGpu& gpu : seen.gpus) out.push_back(&gpu);
  std::sort(out.begin(), out.end(),
            [](const SeenGpu* a, const SeenGpu* b) { return a->id.pci_bus_id < b->id.pci_bus_id; });
  const auto same = [](const SeenGpu* a, const SeenGpu* b) {
    return a->id.pci_bus_id == b->id.pci_bus_id;
  };
  const bool unknown = !out.empty() && out.front()->id.pci_bus_id.empty();
  if (unknown || std::adjacent_find(out.begin(), out.end(), same) != out.end()) return {};
  return out;
}

Result<void> check_unconstrained(std::size_t place, const SeenGpu& gpu, const SeenGpus& seen) {
  const auto one_model = [&](const SeenGpu& each) {
    return each.id.name == seen.gpus.front().id.name;
  };
  if (!std::all_of(seen.gpus.begin(), seen.gpus.end(), one_model))
    return unproven(
        "Slurm does not constrain devices, and the node has GPUs of several models, which CUDA "
        "orders by their speed");
  const auto order = by_bus(seen);
  const bool same_number = gpu.minor == static_cast<int>(place);
  if (!same_number || place >= order.size() || order[place] != &gpu)
    return unproven(
        fmt::format("Slurm does not constrain devices, and its GPU {0} is /dev/nvidia{1}, but not "
                    "also GPU {0} of the PCI bus, which a program takes",
                    place, *gpu.minor));
  return {};
}

}  // namespace

Result<std::vector<std::string>> job_gpus(std::span<const int> places,
                                          std::span<const std::optional<int>> minors,
                                          const SeenGpus& seen, bool constrained) {
  if (!seen.silent.empty())
    return unproven(
        fmt::format("{} of the node's GPUs have no UUID of their own", seen.silent.size()));
  std::vector<std::string> out;
  for (const int place : places) {
    const auto at = static_cast<std::size_t>(place);
    if (place < 0 || at >= minors.size())
      return unproven(fmt::format("Slurm's GPU {} is not in the node's list of {} (slurmd -G)",
                                  place, minors.size()));
    if (!minors[at])
      return unproven(
          fmt::format("the device file of Slurm's GPU {} is none of the NVIDIA driver", place));
    if (std::count(minors.begin(), minors.end(), minors[at]) != 1)
      return unproven(fmt::format("minor number {} is in the node's list twice", *minors[at]));
    const SeenGpu& gpu = *TRY(of_minor(*minors[at], seen));
    if (gpu.mig)
      return unproven(
          fmt::format("GPU {} is in MIG mode: its instances may be of several jobs", gpu.id.uuid));
    if (!constrained) TRY(check_unconstrained(at, gpu, seen));
    if (std::find(out.begin(), out.end(), gpu.id.uuid) != out.end())
      return unproven(fmt::format("two GPUs of the job are {}", gpu.id.uuid));
    out.push_back(gpu.id.uuid);
  }
  return out;
}

}  // namespace derate
