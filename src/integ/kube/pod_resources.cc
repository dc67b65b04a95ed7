#include "integ/kube/pod_resources.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "integ/kube/protobuf.h"

namespace derate {
namespace {

// A DNS subdomain, the longest of Kubernetes' names; device ids are shorter, too.
constexpr std::size_t kLongestName = 253;
constexpr std::size_t kMostDevices = 65536;

Error bad(std::string what) { return {Errc::bad_data, std::move(what)}; }

// Of a field given more than once the last counts; one left out is empty.
Result<std::string> name_in(const std::vector<std::string_view>& texts, std::string_view what) {
  if (texts.empty()) return std::string();
  if (texts.back().size() > kLongestName)
    return bad(
        fmt::format("a {} of {} bytes, allowed are {}", what, texts.back().size(), kLongestName));
  return std::string(texts.back());
}

// ContainerDevices: 1 resource name, 2 device ids.
Result<void> read_devices(std::string_view message, PodDevice device, std::vector<PodDevice>& out) {
  const auto fields = TRY(fields_of(message, 2));
  device.resource = TRY(name_in(fields[1], "resource name"));
  for (const std::string_view id : fields[2]) {
    if (out.size() >= kMostDevices) return bad(fmt::format("more than {} devices", kMostDevices));
    device.device = TRY(name_in({id}, "device id"));
    out.push_back(device);
  }
  return {};
}

// Numbers of fields: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. ListPodResourcesResponse: 1
// pods; PodResources: 1 name, 2 namespace, 3 containers; ContainerResources: 1 name, 2 devices.
Result<std::vector<PodDevice>> read_answer(std::string_view message) {
  std::vector<PodDevice> out;
  const auto answer = TRY(fields_of(message, 1));
  for (const std::string_view pod : answer[1]) {
    const auto of_pod = TRY(fields_of(pod, 3));
    PodDevice device;
    device.pod.pod = TRY(name_in(of_pod[1], "pod's name"));
    device.pod.name_space = TRY(name_in(of_pod[2], "namespace"));
    for (const std::string_view container : of_pod[3]) {
      const auto of_container = TRY(fields_of(container, 2));
      device.container = TRY(name_in(of_container[1], "container's name"));
      for (const std::string_view devices : of_container[2])
        TRY(read_devices(devices, device, out));
    }
  }
  return out;
}

}  // namespace

Result<std::vector<PodDevice>> parse_pod_resources(std::string_view message) {
  return read_answer(message).with("pod-resources answer");
}

}  // namespace derate
