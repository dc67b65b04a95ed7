#include "integ/kube/pod_resources.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace derate {
namespace {

// A DNS subdomain, the longest of Kubernetes' names; device ids are shorter, too.
constexpr std::size_t kLongestName = 253;
constexpr std::size_t kMostDevices = 65536;

// How a field travels (protobuf.dev/programming-guides/encoding); groups are of old, not here.
enum class Wire : std::uint8_t { varint = 0, eight_bytes = 1, length = 2, four_bytes = 5 };

struct WireField {
  std::uint64_t number = 0;
  Wire wire = Wire::varint;
  std::string_view bytes;  // of Wire::length
};

Error bad(std::string_view what) {
  return {Errc::bad_data, fmt::format("pod-resources answer: {}", what)};
}

Result<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t out = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(rest.front());
    rest.remove_prefix(1);
    out |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return out;
  }
  return bad(rest.empty() ? "cut off in a number" : "a number of more than 64 bits");
}

Result<std::string_view> take_bytes(std::string_view& rest, std::uint64_t size) {
  if (size > rest.size())
    return bad(fmt::format("a field of {} bytes where {} are left", size, rest.size()));
  const std::string_view out = rest.substr(0, size);
  rest.remove_prefix(size);
  return out;
}

Result<WireField> take_field(std::string_view& rest) {
  const std::uint64_t tag = TRY(take_varint(rest));
  WireField out;
  out.number = tag >> 3;
  out.wire = static_cast<Wire>(tag & 7);
  if (out.number == 0) return bad("a field of number 0");
  switch (out.wire) {
    case Wire::varint:
      (void)TRY(take_varint(rest));
      return out;
    case Wire::eight_bytes:
      (void)TRY(take_bytes(rest, 8));
      return out;
    case Wire::four_bytes:
      (void)TRY(take_bytes(rest, 4));
      return out;
    case Wire::length: {
      const std::uint64_t size = TRY(take_varint(rest));
      out.bytes = TRY(take_bytes(rest, size));
      return out;
    }
  }
  return bad(fmt::format("a field of kind {}, allowed are 0, 1, 2 and 5", tag & 7));
}

// The texts and messages in `message`, by their numbers: with `out` of 3, those of 1 to 3. Fields
// come in any order, so a message is read whole before what is in it.
Result<std::vector<std::vector<std::string_view>>> fields_of(std::string_view message,
                                                             std::size_t most) {
  std::vector<std::vector<std::string_view>> out(most + 1);
  while (!message.empty()) {
    const WireField field = TRY(take_field(message));
    if (field.wire == Wire::length && field.number <= most)
      out[field.number].push_back(field.bytes);
  }
  return out;
}

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

}  // namespace

// Numbers of fields: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. ListPodResourcesResponse: 1
// pods; PodResources: 1 name, 2 namespace, 3 containers; ContainerResources: 1 name, 2 devices.
Result<std::vector<PodDevice>> parse_pod_resources(std::string_view message) {
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

}  // namespace derate
