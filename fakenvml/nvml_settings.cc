// Clocks, power limits and modes: reading them is a look at memory, writing them a request.
#include <algorithm>

#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::ClockType, nvml::Return;

Return write(const char* function, Device device, Op op, uint a = 0, uint b = 0) {
  return on_gpu(function, device, [&](const Call& call) { return ask_server(call, op, a, b); });
}

bool is_memory(ClockType type) { return type == ClockType::memory; }
bool known(ClockType type) { return static_cast<uint>(type) < nvml::kClockTypes; }

uint highest_clock(const GpuIdentity& identity, const GpuNow&, ClockType type) {
  return is_memory(type) ? identity.memory_clock_mhz
                         : identity.sm_clocks_mhz[identity.clock_count - 1];
}
uint current_clock(const GpuIdentity&, const GpuNow& now, ClockType type) {
  return is_memory(type) ? now.memory_clock_mhz : now.sm_clock_mhz;
}
uint application_clock(const GpuIdentity& identity, const GpuNow& now, ClockType type) {
  const uint set = is_memory(type) ? now.application_memory_mhz : now.application_sm_mhz;
  return set == kNone ? highest_clock(identity, now, type) : set;
}

Return yes(const GpuIdentity&) { return Return::success; }
Return answer_of_application_clocks(const GpuIdentity& identity) {
  constexpr Return kAnswers[] = {Return::success, Return::deprecated, Return::not_supported};
  return kAnswers[identity.driver.application_clocks];
}

template <class F>
Return give_clock(const char* function, Device device, ClockType type, uint* out, F clock,
                  Return (*offered)(const GpuIdentity&) = yes) {
  return with_now(function, device, [&](const Call& call, const GpuNow& now) {
    if (out == nullptr || !known(type)) return Return::invalid_argument;
    if (const Return code = offered(call.identity()); code != Return::success) return code;
    *out = clock(call.identity(), now, type);
    return Return::success;
  });
}

// A list with the highest first, as NVML gives it.
Return give_descending(const std::uint32_t* ascending, uint size, uint* count, uint* out) {
  const uint room = *count;
  *count = size;
  if (out == nullptr || room < size) return Return::insufficient_size;
  std::reverse_copy(ascending, ascending + size, out);
  return Return::success;
}

}  // namespace

Return nvmlDeviceGetClockInfo(Device device, ClockType type, uint* out) {
  return give_clock(__func__, device, type, out, current_clock);
}
Return nvmlDeviceGetMaxClockInfo(Device device, ClockType type, uint* out) {
  return give_clock(__func__, device, type, out, highest_clock);
}
Return nvmlDeviceGetMaxCustomerBoostClock(Device device, ClockType type, uint* out) {
  return give_clock(__func__, device, type, out, highest_clock);
}
Return nvmlDeviceGetApplicationsClock(Device device, ClockType type, uint* out) {
  return give_clock(__func__, device, type, out, application_clock, answer_of_application_clocks);
}
Return nvmlDeviceGetDefaultApplicationsClock(Device device, ClockType type, uint* out) {
  return give_clock(__func__, device, type, out, highest_clock, answer_of_application_clocks);
}
Return nvmlDeviceGetClock(Device device, ClockType type, uint id, uint* out) {
  enum { kCurrent, kApplicationTarget, kApplicationDefault, kBoostMaximum, kIds };
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (out == nullptr || !known(type) || id >= kIds) return Return::invalid_argument;
    *out = highest_clock(call.identity(), now, type);
    if (id == kCurrent) *out = current_clock(call.identity(), now, type);
    if (id == kApplicationTarget) *out = application_clock(call.identity(), now, type);
    return Return::success;
  });
}

Return nvmlDeviceGetSupportedMemoryClocks(Device device, uint* count, uint* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (count == nullptr) return Return::invalid_argument;
    const GpuIdentity& identity = call.identity();
    const uint others = identity.other_memory_clock_count, room = *count;
    *count = 1 + others;
    if (out == nullptr || room < *count) return Return::insufficient_size;
    out[0] = identity.memory_clock_mhz;
    for (uint i = 0; i < others; ++i) out[1 + i] = identity.other_memory_clocks[i].clock_mhz;
    return Return::success;
  });
}
Return nvmlDeviceGetSupportedGraphicsClocks(Device device, uint memory_mhz, uint* count,
                                            uint* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (count == nullptr) return Return::invalid_argument;
    const GpuIdentity& identity = call.identity();
    if (memory_mhz == identity.memory_clock_mhz)
      return give_descending(identity.sm_clocks_mhz, identity.clock_count, count, out);
    for (uint i = 0; i < identity.other_memory_clock_count; ++i)
      if (const OtherMemoryClock& other = identity.other_memory_clocks[i];
          other.clock_mhz == memory_mhz && other.sm_clock_count > 0)
        return give_descending(other.sm_clocks_mhz, other.sm_clock_count, count, out);
    return Return::not_found;
  });
}

Return nvmlDeviceSetGpuLockedClocks(Device device, uint lowest_mhz, uint highest_mhz) {
  return write(__func__, device, Op::set_locked_clocks, lowest_mhz, highest_mhz);
}
Return nvmlDeviceResetGpuLockedClocks(Device device) {
  return write(__func__, device, Op::reset_locked_clocks);
}
Return nvmlDeviceSetMemoryLockedClocks(Device device, uint lowest_mhz, uint highest_mhz) {
  return write(__func__, device, Op::set_memory_locked_clocks, lowest_mhz, highest_mhz);
}
Return nvmlDeviceResetMemoryLockedClocks(Device device) {
  return write(__func__, device, Op::reset_memory_locked_clocks);
}
Return nvmlDeviceSetApplicationsClocks(Device device, uint memory_mhz, uint sm_mhz) {
  return write(__func__, device, Op::set_application_clocks, memory_mhz, sm_mhz);
}
Return nvmlDeviceResetApplicationsClocks(Device device) {
  return write(__func__, device, Op::reset_application_clocks);
}

GIVES(nvmlDeviceGetPowerManagementMode, EnableState, EnableState::on)
Return nvmlDeviceGetPowerManagementLimit(Device device, uint* milliwatts) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (milliwatts == nullptr) return Return::invalid_argument;
    if (call.identity().driver.power_limit_fixed != 0) return Return::not_supported;
    *milliwatts = now.power_limit_mw;
    return Return::success;
  });
}
GIVES_NOW(nvmlDeviceGetEnforcedPowerLimit, uint, now.power_limit_mw)
GIVES(nvmlDeviceGetPowerManagementDefaultLimit, uint, call.identity().power_factory_mw)
Return nvmlDeviceGetPowerManagementLimitConstraints(Device device, uint* lowest, uint* highest) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (lowest == nullptr || highest == nullptr) return Return::invalid_argument;
    *lowest = call.identity().power_lowest_mw;
    *highest = call.identity().power_highest_mw;
    return Return::success;
  });
}
Return nvmlDeviceSetPowerManagementLimit(Device device, uint milliwatts) {
  return write(__func__, device, Op::set_power_limit, milliwatts);
}

GIVES_NOW(nvmlDeviceGetPersistenceMode, EnableState,
          now.modes.persistence != 0 ? EnableState::on : EnableState::off)
Return nvmlDeviceSetPersistenceMode(Device device, EnableState mode) {
  return write(__func__, device, Op::set_persistence, static_cast<uint>(mode));
}

Return nvmlDeviceGetMigMode(Device device, uint* current, uint* pending) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (current == nullptr || pending == nullptr) return Return::invalid_argument;
    if (call.identity().has_mig == 0) return Return::not_supported;
    *current = *pending = now.mig;
    return Return::success;
  });
}
Return nvmlDeviceSetMigMode(Device device, uint mode, Return* activation) {
  if (activation == nullptr) return Return::invalid_argument;
  *activation = Return::success;
  return write(__func__, device, Op::set_mig, mode);
}
Return nvmlDeviceGetAPIRestriction(Device device, uint api, EnableState* out) {
  return on_gpu(__func__, device, [&](const Call&) {
    if (out == nullptr || api > 1) return Return::invalid_argument;
    *out = EnableState::on;
    return Return::success;
  });
}

}  // namespace derate::fakenvml
