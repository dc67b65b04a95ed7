// Pods that request how their GPUs are governed, with the devices that the kubelet has given to
// them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "integ/pod_devices.h"
#include "integ/pod_wish.h"

namespace derate {

struct PodRequest {
  PodName name;
  std::string uid;                 // never another pod's
  std::vector<PodDevice> devices;  // of this pod, not of an earlier one of its name
  PodWish wish;

  bool operator==(const PodRequest&) const = default;
};

// The newest; null: none are known. It never changes, so that a new pointer is a new answer.
using PodRequests = std::shared_ptr<const std::vector<PodRequest>>;

}  // namespace derate
