// GPUs and MIG instances of each Kubernetes pod, as the kubelet reports them
// (integ/kube/pod_resources.h): names of devices parsed, and the pods of a GPU or an instance.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/gpu_id.h"
#include "core/tenancy.h"

namespace derate {

struct PodName {
  std::string name_space, pod;

  auto operator<=>(const PodName&) const = default;
};

// One device in one container of one pod.
struct PodDevice {
  PodName pod;
  std::string container;  // its name in the pod
  std::string resource;   // "nvidia.com/gpu", "nvidia.com/mig-1g.18gb"
  std::string device;     // as the device plugin calls it

  bool operator==(const PodDevice&) const = default;
};

// A device plugin's name of a GPU or an instance, taken apart. Exactly one of the first three is
// there.
struct DeviceName {
  std::string gpu_uuid;                 // "GPU-..."
  std::string mig_uuid;                 // "MIG-...", of a compute instance
  std::optional<int> gpu_index;         // NVML's order
  std::optional<int> gpu_instance;      // with gpu_uuid: the instance's id
  std::optional<int> compute_instance;  // with gpu_instance

  bool operator==(const DeviceName&) const = default;
};

// "GPU-U", "MIG-U", "MIG-GPU-U/GI/CI" (drivers before R470) or "INDEX", each also with the
// "::REPLICA" of a GPU shared in time. Empty for anything else: such a device is nobody's.
std::optional<DeviceName> parse_device_name(std::string_view text);

// The pods that were given this GPU as a whole, or this instance of it; each once, in order. A
// device that is only a number counts where its resource is "nvidia.com/...".
std::vector<PodName> pods_of_gpu(const std::vector<PodDevice>& devices, const GpuId& gpu);
std::vector<PodName> pods_of_instance(const std::vector<PodDevice>& devices, const GpuId& gpu,
                                      const GpuInstance& instance);

}  // namespace derate
