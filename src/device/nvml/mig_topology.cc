#include "device/nvml/mig_topology.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "device/nvml/nvml_calls.h"

namespace derate {
namespace {

using nvml::Return;

constexpr double kBytesPerMib = 1024.0 * 1024.0;
constexpr unsigned int kMigDevicesMax = 256;  // far more than 7 or 8: a driver's rubbish ends here

// "NVIDIA H200 MIG 1c.3g.71gb" and "MIG 3g.71gb" are both "3g.71gb".
std::string profile_of(std::string_view name) {
  constexpr std::string_view kMark = "MIG ";
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos) return {};
  name.remove_prefix(mark + kMark.size());
  const std::size_t dot = name.find('.');
  if (dot != std::string_view::npos && dot > 0 && name[dot - 1] == 'c') name.remove_prefix(dot + 1);
  return std::string(name);
}

// What came and went while it was asked for.
bool went(Return code) { return code == Return::not_found || code == Return::invalid_argument; }

Result<std::optional<MigDevice>> read_device(const NvmlLibrary& library, nvml::Device handle) {
  const NvmlFunctions& nvml = library.functions();
  MigDevice out{.gpu_instance = 0, .compute_instance = 0, .handle = handle, .uuid = {}};
  char uuid[nvml::kUuidSize] = {};
  Return code = nvml.gpu_instance_id(handle, &out.gpu_instance);
  if (went(code)) return std::optional<MigDevice>();
  if (code != Return::success) return library.error(code, "nvmlDeviceGetGpuInstanceId");
  if (nvml.compute_instance_id != nullptr) {
    code = nvml.compute_instance_id(handle, &out.compute_instance);
    if (went(code)) return std::optional<MigDevice>();
    if (code != Return::success) return library.error(code, "nvmlDeviceGetComputeInstanceId");
  }
  code = nvml.uuid(handle, uuid, nvml::kUuidSize);
  if (went(code)) return std::optional<MigDevice>();
  if (code != Return::success) return library.error(code, "nvmlDeviceGetUUID");
  out.uuid = buffer_text(uuid);
  return std::optional(std::move(out));
}

// Every GPU instance, also those without a compute instance. Empty without the rights.
std::vector<nvml::InstanceInfo> list_infos(const NvmlFunctions& nvml, nvml::Device device,
                                           const MigProfiles& profiles) {
  std::vector<nvml::InstanceInfo> out;
  if (nvml.instances == nullptr || nvml.instance_info == nullptr) return out;
  for (const nvml::InstanceProfile& profile : profiles.list) {
    // The driver ignores the buffer's size and writes all instances, possibly more than it
    // reported.
    const unsigned int room = std::clamp(profile.instances, 1u, kMigDevicesMax);
    std::vector<nvml::Instance> handles(2 * kMigDevicesMax);
    unsigned int count = room;
    if (nvml.instances(device, profile.id, handles.data(), &count) != Return::success) continue;
    for (std::size_t i = 0; i < std::min(count, room); ++i) {
      nvml::InstanceInfo info{};
      if (nvml.instance_info(handles[i], &info) == Return::success) out.push_back(info);
    }
  }
  return out;
}

void apply(GpuInstance& out, const nvml::InstanceProfile& profile) {
  out.profile = profile_of(buffer_text(profile.name));
  out.slices = static_cast<int>(profile.slices);
  out.multiprocessors = static_cast<int>(profile.multiprocessors);
  out.memory_bytes = static_cast<double>(profile.memory_mib) * kBytesPerMib;
}

GpuInstance instance_of(const nvml::InstanceInfo& info, const MigProfiles& profiles) {
  GpuInstance out{.id = static_cast<int>(info.id)};
  for (const nvml::InstanceProfile& profile : profiles.list)
    if (profile.id == info.profile_id) apply(out, profile);
  out.memory_slices = static_cast<int>(info.placement.size);
  return out;
}

// The same from its compute instances, for those who may not ask for more.
GpuInstance instance_of(const NvmlFunctions& nvml, std::span<const MigDevice> devices,
                        const MigProfiles& profiles) {
  GpuInstance out{.id = static_cast<int>(devices.front().gpu_instance)};
  char name[nvml::kNameSize] = {};
  if (nvml.name && nvml.name(devices.front().handle, name, nvml::kNameSize) == Return::success)
    out.profile = profile_of(buffer_text(name));
  nvml::Attributes sum{};
  for (const MigDevice& device : devices) {
    nvml::Attributes one{};
    if (!nvml.attributes || nvml.attributes(device.handle, &one) != Return::success) continue;
    sum.multiprocessors += one.multiprocessors;
    sum.compute_instance_slices += one.compute_instance_slices;
    sum.gpu_instance_slices = one.gpu_instance_slices;
    sum.memory_mib = one.memory_mib;
  }
  out.slices = static_cast<int>(sum.gpu_instance_slices);
  if (sum.memory_mib > 0) out.memory_bytes = static_cast<double>(sum.memory_mib) * kBytesPerMib;
  // Compute instances need not fill their GPU instance.
  if (sum.compute_instance_slices > 0)
    out.multiprocessors =
        static_cast<int>(std::lround(static_cast<double>(sum.multiprocessors) * out.slices /
                                     static_cast<double>(sum.compute_instance_slices)));
  for (const nvml::InstanceProfile& profile : profiles.list)
    if (!out.profile.empty() && profile_of(buffer_text(profile.name)) == out.profile)
      apply(out, profile);
  return out;
}

// Slices are of equal size, and a little of them is kept back.
void estimate_memory_slices(GpuInstance& instance, const MigProfiles& profiles) {
  if (instance.memory_slices > 0 || !profiles.memory_slices || !instance.memory_bytes) return;
  const double share = *instance.memory_bytes / (profiles.memory_mib * kBytesPerMib);
  const auto slices = static_cast<int>(std::lround(share * *profiles.memory_slices));
  instance.memory_slices = std::clamp(slices, 1, *profiles.memory_slices);
}

}  // namespace

Result<std::vector<MigDevice>> list_mig_devices(const NvmlLibrary& library, nvml::Device device) {
  const NvmlFunctions& nvml = library.functions();
  std::vector<MigDevice> out;
  if (!nvml.mig_device_count || !nvml.mig_device || !nvml.gpu_instance_id) return out;
  unsigned int count = 0;
  Return code = nvml.mig_device_count(device, &count);
  if (code == Return::not_supported) return out;
  if (code != Return::success) return library.error(code, "nvmlDeviceGetMaxMigDeviceCount");
  for (unsigned int i = 0; i < std::min(count, kMigDevicesMax); ++i) {
    nvml::Device handle = nullptr;
    code = nvml.mig_device(device, i, &handle);
    if (went(code)) continue;  // no MIG device at this index
    if (code == Return::not_supported) return out;
    if (code != Return::success) return library.error(code, "nvmlDeviceGetMigDeviceHandleByIndex");
    if (auto one = TRY(read_device(library, handle))) out.push_back(*std::move(one));
  }
  std::sort(out.begin(), out.end(), [](const MigDevice& a, const MigDevice& b) {
    return std::tie(a.gpu_instance, a.compute_instance) <
           std::tie(b.gpu_instance, b.compute_instance);
  });
  return out;
}

Result<MigProfiles> read_mig_profiles(const NvmlLibrary& library, nvml::Device device) {
  const NvmlFunctions& nvml = library.functions();
  MigProfiles out;
  std::set<unsigned int> ids;
  for (unsigned int i = 0; nvml.instance_profile && i < nvml::kInstanceProfilesMax; ++i) {
    nvml::InstanceProfile profile{};
    profile.version = nvml::kInstanceProfileV2;
    const Return code = nvml.instance_profile(device, i, &profile);
    if (code != Return::success) {
      Error error = library.error(code, "nvmlDeviceGetGpuInstanceProfileInfoV");
      if (error.code == Errc::gpu_lost) return error;
      continue;  // the GPU has no such profile
    }
    if (ids.insert(profile.id).second) out.list.push_back(profile);
  }
  const auto whole =
      std::max_element(out.list.begin(), out.list.end(), [](const auto& a, const auto& b) {
        return std::tie(a.slices, a.multiprocessors, a.memory_mib) <
               std::tie(b.slices, b.multiprocessors, b.memory_mib);
      });
  if (whole == out.list.end() || whole->slices == 0 || whole->memory_mib == 0) return out;
  out.slices = static_cast<int>(whole->slices);
  out.memory_slices = *out.slices == 7 ? 8 : *out.slices;
  out.multiprocessors = static_cast<int>(whole->multiprocessors);
  out.memory_mib = static_cast<double>(whole->memory_mib);
  return out;
}

Result<MigTopology> read_mig_topology(const NvmlLibrary& library, nvml::Device device,
                                      const MigProfiles& profiles) {
  const NvmlFunctions& nvml = library.functions();
  MigTopology out;
  out.devices = TRY(list_mig_devices(library, device));
  std::map<int, GpuInstance> instances;
  for (const nvml::InstanceInfo& info : list_infos(nvml, device, profiles))
    instances[static_cast<int>(info.id)] = instance_of(info, profiles);
  for (auto at = out.devices.begin(); at != out.devices.end();) {
    const auto end = std::find_if(at, out.devices.end(), [&](const MigDevice& other) {
      return other.gpu_instance != at->gpu_instance;
    });
    const auto id = static_cast<int>(at->gpu_instance);
    if (!instances.contains(id)) instances[id] = instance_of(nvml, {at, end}, profiles);
    instances[id].uuid = at->uuid;
    at = end;
  }
  for (auto& [id, instance] : instances) {
    estimate_memory_slices(instance, profiles);
    out.instances.push_back(std::move(instance));
  }
  return out;
}

Result<std::string> gpu_of_mig_device(const NvmlLibrary& library, const std::string& uuid) {
  const NvmlFunctions& nvml = library.functions();
  unsigned int count = 0;
  if (const Return code = nvml.device_count(&count); code != Return::success)
    return library.error(code, "nvmlDeviceGetCount");
  for (unsigned int i = 0; i < count; ++i) {
    nvml::Device device = nullptr;
    char own[nvml::kUuidSize] = {};
    if (nvml.device_by_index(i, &device) != Return::success) continue;
    const auto devices = list_mig_devices(library, device);
    if (!devices.ok() || nvml.uuid(device, own, nvml::kUuidSize) != Return::success) continue;
    if (std::any_of(devices->begin(), devices->end(),
                    [&](const MigDevice& each) { return each.uuid == uuid; }))
      return buffer_text(own);
  }
  return Error{Errc::not_found, uuid + ": no GPU has a MIG instance of that UUID"};
}

bool still_there(const NvmlLibrary& library, const MigTopology& topology) {
  return std::all_of(topology.devices.begin(), topology.devices.end(), [&](const auto& device) {
    char uuid[nvml::kUuidSize] = {};
    return library.functions().uuid(device.handle, uuid, nvml::kUuidSize) == Return::success &&
           buffer_text(uuid) == device.uuid;
  });
}

}  // namespace derate
