#include "service/scheduler/pod_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/printing.h"

namespace derate {
namespace {

constexpr std::size_t kLongestShown = 100;

// Devices of other makers and kinds (network cards) are no GPUs of ours.
bool may_be_gpu(const PodDevice& device) {
  return device.resource.starts_with("nvidia.com/") || device.device.starts_with("GPU-") ||
         device.device.starts_with("MIG-");
}

// A sentence about a device that is not among the GPUs here, as far as is known.
std::string unproven_device(const PodRequest& pod, const PodDevice& device) {
  const auto name = parse_device_name(device.device);
  const bool is_instance = name && !name->mig_uuid.empty();
  return fmt::format("pod {}/{}: device '{}' is not {}", pod.name.name_space, pod.name.pod,
                     log_text(device.device, kLongestShown),
                     is_instance ? "a known MIG instance; instances are known while energy is "
                                   "attributed ([attribute] enabled)"
                                 : "proven to be a GPU here");
}

}  // namespace

std::optional<std::string> gpu_of_device(const PodDevice& device, std::span<const GpuId> gpus,
                                         const InstanceGpus& instances) {
  const auto name = parse_device_name(device.device);
  if (!name || name->gpu_index) return std::nullopt;
  std::string uuid = name->gpu_uuid;
  if (!name->mig_uuid.empty()) {
    const auto at = instances.find(name->mig_uuid);
    if (at == instances.end()) return std::nullopt;
    uuid = at->second;
  }
  const bool here =
      std::any_of(gpus.begin(), gpus.end(), [&](const GpuId& gpu) { return gpu.uuid == uuid; });
  return here ? std::optional(uuid) : std::nullopt;
}

PodMatch match_pods(const std::vector<PodRequest>& pods, std::span<const GpuId> gpus,
                    const InstanceGpus& instances) {
  PodMatch out;
  for (const PodRequest& pod : pods) {
    std::set<std::string> of_pod;
    for (const PodDevice& device : pod.devices) {
      if (const auto uuid = gpu_of_device(device, gpus, instances))
        of_pod.insert(*uuid);
      else if (may_be_gpu(device))
        out.unproven[pod.uid] = unproven_device(pod, device);
    }
    for (const std::string& uuid : of_pod) out.on_gpu[uuid].push_back(&pod);
  }
  return out;
}

}  // namespace derate
