// The kubelet's pod-resources messages, v1: what of them says which devices a pod was given.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "integ/pod_devices.h"

namespace derate {

// The devices of a ListPodResourcesResponse as it travels (protobuf); what else it holds is passed
// over. Errors: bad_data where it is cut off or no protobuf, where a name is longer than Kubernetes
// allows, and for more than 65536 devices.
Result<std::vector<PodDevice>> parse_pod_resources(std::string_view message);

}  // namespace derate
