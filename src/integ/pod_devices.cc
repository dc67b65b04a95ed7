#include "integ/pod_devices.h"

#include <algorithm>

#include "base/text.h"

namespace derate {
namespace {

std::optional<int> parse_index(std::string_view text) {
  if (text.empty() || text.size() > 4 || text[0] < '0' || text[0] > '9') return std::nullopt;
  const auto value = parse_integer(text);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

// What follows "GPU-" and "MIG-": letters, digits and dashes.
bool is_uuid_rest(std::string_view text) {
  return !text.empty() && text.size() <= 80 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
  });
}

std::optional<DeviceName> parse_old_mig(std::string_view text) {
  const auto parts = split(text, '/');
  if (parts.size() != 3 || !is_uuid_rest(parts[0].substr(4))) return std::nullopt;
  DeviceName out;
  out.gpu_uuid = parts[0];
  out.gpu_instance = parse_index(parts[1]);
  out.compute_instance = parse_index(parts[2]);
  if (!out.gpu_instance || !out.compute_instance) return std::nullopt;
  return out;
}

template <class Has>
std::vector<PodName> pods_with(const std::vector<PodDevice>& devices, const Has& has) {
  std::vector<PodName> out;
  for (const PodDevice& device : devices) {
    const auto name = parse_device_name(device.device);
    // A bare number may be any maker's.
    if (name && name->gpu_index && !device.resource.starts_with("nvidia.com/")) continue;
    if (name && has(*name)) out.push_back(device.pod);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool names_gpu(const DeviceName& name, const GpuId& gpu) {
  return name.gpu_index ? *name.gpu_index == gpu.index
                        : !name.gpu_uuid.empty() && name.gpu_uuid == gpu.uuid;
}

}  // namespace

std::optional<DeviceName> parse_device_name(std::string_view text) {
  if (const auto at = text.find("::"); at != std::string_view::npos) {
    if (!parse_index(text.substr(at + 2))) return std::nullopt;
    text = text.substr(0, at);
  }
  DeviceName out;
  if (text.starts_with("MIG-GPU-")) return parse_old_mig(text.substr(4));
  if (text.starts_with("GPU-") && is_uuid_rest(text.substr(4))) {
    out.gpu_uuid = text;
  } else if (text.starts_with("MIG-") && is_uuid_rest(text.substr(4))) {
    out.mig_uuid = text;
  } else {
    out.gpu_index = parse_index(text);
    if (!out.gpu_index) return std::nullopt;
  }
  return out;
}

std::vector<PodName> pods_of_gpu(const std::vector<PodDevice>& devices, const GpuId& gpu) {
  return pods_with(
      devices, [&](const DeviceName& name) { return !name.gpu_instance && names_gpu(name, gpu); });
}

std::vector<PodName> pods_of_instance(const std::vector<PodDevice>& devices, const GpuId& gpu,
                                      const GpuInstance& instance) {
  return pods_with(devices, [&](const DeviceName& name) {
    if (name.gpu_instance) return *name.gpu_instance == instance.id && names_gpu(name, gpu);
    return !instance.uuid.empty() && name.mig_uuid == instance.uuid;
  });
}

}  // namespace derate
