// MIG: instances as the server cut them, with their compute instances. Nothing is
// created or destroyed here; assumed: everybody may look.
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

// The memory slices before it: instances lie one after the other.
uint start_of(const GpuIdentity& identity, const GpuInstances& all, uint slot) {
  uint start = 0;
  for (uint i = 0; i < slot; ++i) start += identity.profiles[all.list[i].profile].memory_slices;
  return start;
}

template <class F>
Return with_instances(const char* function, Device device, F body) {
  return with_now(function, device, [&](const Call& call, const GpuNow& now) {
    if (call.identity().has_mig == 0 || now.mig == 0) return Return::not_supported;
    const auto all = call.state().instances.read();
    return all ? body(call, *all) : Return::gpu_is_lost;
  });
}

}  // namespace

Return nvmlDeviceGetMaxMigDeviceCount(Device device, uint* out) {
  constexpr uint kInstances = 7;
  return give(__func__, device, out,
              [](const Call& call) { return call.identity().has_mig != 0 ? kInstances : 0; });
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, uint index, Device* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    if (call.identity().has_mig == 0) return Return::not_supported;
    const auto all = call.state().instances.read();
    if (!all) return Return::gpu_is_lost;
    if (index >= kInstancesMax || all->devices[index].there == 0) return Return::not_found;
    *out = handle_of(call.gpu, index);
    return Return::success;
  });
}

Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device mig, Device* out) {
  return on_mig(__func__, mig, [&](const Call& call, const MigDeviceNow&) {
    if (out == nullptr) return Return::invalid_argument;
    *out = handle_of(call.gpu);
    return Return::success;
  });
}

Return nvmlDeviceIsMigDeviceHandle(Device device, uint* out) {
  return on_any(__func__, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    *out = call.slot ? 1 : 0;
    return Return::success;
  });
}

Return nvmlDeviceGetGpuInstanceId(Device mig, uint* out) {
  return on_mig(__func__, mig, [&](const Call&, const MigDeviceNow& device) {
    if (out == nullptr) return Return::invalid_argument;
    *out = device.gpu_instance;
    return Return::success;
  });
}

Return nvmlDeviceGetComputeInstanceId(Device mig, uint* out) {
  return on_mig(__func__, mig, [&](const Call&, const MigDeviceNow& device) {
    if (out == nullptr) return Return::invalid_argument;
    *out = device.compute_instance;
    return Return::success;
  });
}

Return nvmlDeviceGetAttributes_v2(Device mig, nvml::Attributes* out) {
  return on_mig(__func__, mig, [&](const Call&, const MigDeviceNow& device) {
    if (out == nullptr) return Return::invalid_argument;
    *out = {};
    out->multiprocessors = device.multiprocessors;
    out->gpu_instance_slices = device.gpu_slices;
    out->compute_instance_slices = device.slices;
    out->memory_mib = device.memory_mib;
    return Return::success;
  });
}

Return nvmlDeviceGetGpuInstanceProfileInfoV(Device device, uint profile,
                                            nvml::InstanceProfile* out) {
  return with_instances(__func__, device, [&](const Call& call, const GpuInstances&) {
    if (out == nullptr) return Return::invalid_argument;
    if (out->version != nvml::kInstanceProfileV2) return Return::argument_version_mismatch;
    const GpuIdentity& identity = call.identity();
    for (uint i = 0; i < identity.profile_count; ++i) {
      const ProfileFacts& facts = identity.profiles[i];
      if (facts.nvml_index != profile) continue;
      *out = {.version = nvml::kInstanceProfileV2, .id = facts.id, .slices = facts.slices};
      out->instances = facts.room;
      out->multiprocessors = facts.multiprocessors;
      out->memory_mib = facts.memory_mib;
      put_text(out->name, "MIG " + get_text(facts.name));
      return Return::success;
    }
    return profile < nvml::kInstanceProfilesMax ? Return::not_supported : Return::invalid_argument;
  });
}

Return nvmlDeviceGetGpuInstances(Device device, uint profile_id, nvml::Instance* out, uint* count) {
  return with_instances(__func__, device, [&](const Call& call, const GpuInstances& all) {
    if (out == nullptr || count == nullptr) return Return::invalid_argument;
    *count = 0;
    for (uint i = 0; i < all.count; ++i)
      if (call.identity().profiles[all.list[i].profile].id == profile_id)
        out[(*count)++] = instance_handle_of(call.gpu, i);
    return Return::success;
  });
}

Return nvmlGpuInstanceGetInfo(nvml::Instance instance, nvml::InstanceInfo* out) {
  return guarded(__func__, [&](const Call& session) {
    const auto place = place_of(instance);
    if (!place || place->first >= session.client->state().gpus || out == nullptr)
      return Return::invalid_argument;
    const Call call{session.client, place->first, place->second};
    const auto all = call.state().instances.read();
    if (!all) return Return::gpu_is_lost;
    if (place->second >= all->count) return Return::invalid_argument;
    const InstanceNow& one = all->list[place->second];
    const ProfileFacts& profile = call.identity().profiles[one.profile];
    *out = {.device = handle_of(call.gpu),
            .id = one.id,
            .profile_id = profile.id,
            .placement = {start_of(call.identity(), *all, place->second), profile.memory_slices}};
    return Return::success;
  });
}

}  // namespace derate::fakenvml
