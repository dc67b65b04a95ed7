// Settings that graphics tools and fleet managers make: clock offsets, PowerMizer, workload power
// profiles. They are kept and shown, and change nothing of the physics.
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::ClockType, nvml::Return;

// As graphics tools show it on GeForce GPUs; assumed for all.
constexpr int kOffsetMost = 1000;  // MHz
constexpr uint kPowerMizerSupported =
    1U << nvml::kPowerMizerAdaptive | 1U << nvml::kPowerMizerMaximum | 1U << nvml::kPowerMizerAuto;

template <class T>
Return checked(const T* info, bool offered) {
  if (info == nullptr) return Return::invalid_argument;
  if (!offered) return Return::not_supported;
  return info->version == T{}.version ? Return::success : Return::argument_version_mismatch;
}

// The driver's own table is not public: one profile excludes another of its pair, and the lower
// number is enforced.
uint conflicts_of(uint profile) {
  constexpr uint kPairs[][2] = {{0, 1}, {2, 3}, {6, 7}};  // max_p max_q, compute memory, llm
  for (const auto& [one, other] : kPairs) {
    if (profile == one) return 1U << other;
    if (profile == other) return 1U << one;
  }
  return 0;
}
uint enforced_of(uint requested) {
  uint out = 0;
  for (uint profile = 0; profile < kPowerProfiles; ++profile)
    if ((requested >> profile & 1U) != 0 && (conflicts_of(profile) & out) == 0)
      out |= 1U << profile;
  return out;
}
nvml::Mask255 mask_of(uint bits) { return {{bits}}; }
bool is_known(const nvml::Mask255& mask) {
  uint others = mask.bits[0] >> kPowerProfiles;
  for (uint i = 1; i < 8; ++i) others |= mask.bits[i];
  return others == 0;
}

Return update(const char* function, Device device, uint operation, const nvml::Mask255* mask) {
  return on_gpu(function, device, [&](const Call& call) {
    if (mask == nullptr || !is_known(*mask)) return Return::invalid_argument;
    if (call.identity().driver.power_profiles == 0) return Return::not_supported;
    return ask_server(call, Op::update_power_profiles, operation, mask->bits[0]);
  });
}

}  // namespace

Return nvmlDeviceGetClockOffsets(Device device, nvml::ClockOffset* info) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (const Return code = checked(info, call.identity().driver.clock_offsets != 0);
        code != Return::success)
      return code;
    if (info->clock != ClockType::graphics && info->clock != ClockType::memory)
      return Return::not_supported;
    info->offset_mhz =
        info->clock == ClockType::memory ? now.modes.memory_offset_mhz : now.modes.sm_offset_mhz;
    info->lowest_mhz = -kOffsetMost;
    info->highest_mhz = kOffsetMost;
    return Return::success;
  });
}
Return nvmlDeviceSetClockOffsets(Device device, nvml::ClockOffset* info) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (const Return code = checked(info, call.identity().driver.clock_offsets != 0);
        code != Return::success)
      return code;
    if (info->offset_mhz < -kOffsetMost || info->offset_mhz > kOffsetMost)
      return Return::invalid_argument;
    return ask_server(call, Op::set_clock_offset, static_cast<uint>(info->clock),
                      static_cast<uint>(info->offset_mhz));
  });
}

Return nvmlDeviceGetPowerMizerMode_v1(Device device, nvml::PowerMizerModes* modes) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (modes == nullptr) return Return::invalid_argument;
    if (call.identity().driver.power_mizer == 0) return Return::not_supported;
    modes->current = now.modes.power_mizer;
    modes->supported = kPowerMizerSupported;
    return Return::success;
  });
}
Return nvmlDeviceSetPowerMizerMode_v1(Device device, nvml::PowerMizerModes* modes) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (modes == nullptr) return Return::invalid_argument;
    if (call.identity().driver.power_mizer == 0) return Return::not_supported;
    if (modes->requested > nvml::kPowerMizerAuto) return Return::invalid_argument;
    return ask_server(call, Op::set_power_mizer, modes->requested);
  });
}

Return nvmlDeviceWorkloadPowerProfileGetProfilesInfo(Device device,
                                                     nvml::PowerProfileTable* table) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (const Return code = checked(table, call.identity().driver.power_profiles != 0);
        code != Return::success)
      return code;
    table->supported = mask_of((1U << kPowerProfiles) - 1);
    for (uint id = 0; id < kPowerProfiles; ++id) {
      table->profiles[id].id = id;
      table->profiles[id].priority = id;
      table->profiles[id].conflicts = mask_of(conflicts_of(id));
    }
    return Return::success;
  });
}
Return nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(Device device, nvml::PowerProfiles* out) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (const Return code = checked(out, call.identity().driver.power_profiles != 0);
        code != Return::success)
      return code;
    out->supported = mask_of((1U << kPowerProfiles) - 1);
    out->requested = mask_of(now.modes.requested_profiles);
    out->enforced = mask_of(enforced_of(now.modes.requested_profiles));
    return Return::success;
  });
}
Return nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(Device device, nvml::ProfileUpdate* change) {
  return update(__func__, device, change == nullptr ? 0 : change->operation,
                change == nullptr ? nullptr : &change->profiles);
}
Return nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(Device device,
                                                          nvml::RequestedProfiles* profiles) {
  return update(__func__, device, nvml::kProfilesAdd,
                profiles == nullptr ? nullptr : &profiles->profiles);
}
Return nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(Device device,
                                                            nvml::RequestedProfiles* profiles) {
  return update(__func__, device, nvml::kProfilesClear,
                profiles == nullptr ? nullptr : &profiles->profiles);
}

}  // namespace derate::fakenvml
