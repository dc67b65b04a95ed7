// The GPUs of pods, by UUID: only what a device's name proves. Pure.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/gpu_id.h"
#include "integ/pod_requests.h"

namespace derate {

// UUID of the GPU of each MIG instance, by the instance's UUID.
using InstanceGpus = std::map<std::string, std::string>;

// UUID of the GPU that the device is, or is a part of, among `gpus`. Empty: it is not here, or that
// is not proven: a bare number is a place in the device plugin's list.
std::optional<std::string> gpu_of_device(const PodDevice& device, std::span<const GpuId> gpus,
                                         const InstanceGpus& instances);

struct PodMatch {
  std::map<std::string, std::vector<const PodRequest*>> on_gpu;  // by UUID; each pod once
  // A sentence for each pod that has GPUs of which not all are known.
  std::map<std::string, std::string> unproven;  // by the pod's UID
};
// `pods` outlives what is returned.
PodMatch match_pods(const std::vector<PodRequest>& pods, std::span<const GpuId> gpus,
                    const InstanceGpus& instances);

}  // namespace derate
