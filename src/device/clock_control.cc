#include "device/clock_control.h"

namespace derate {
namespace {

template <class Q>
void put(KnobValues& out, const char* knob, const std::optional<Q>& setting) {
  if (setting) out[knob] = one_value(setting->value());
}

Error not_written(const KnobInfo& knob) {
  return {Errc::not_supported, std::string(knob.words) + ": is not written on GPUs"};
}

}  // namespace

Result<void> ClockControl::lock_memory_clock(Megahertz /*lowest*/, Megahertz /*highest*/) {
  return not_written(*find_knob(gpu_knobs(), kMemoryLock));
}
Result<void> ClockControl::reset_memory_clock() {
  return not_written(*find_knob(gpu_knobs(), kMemoryLock));
}

Result<KnobValues> ClockControl::read_knobs() {
  const GpuSettings now = TRY(settings());
  KnobValues out;
  put(out, kPowerLimit, now.power_limit);
  put(out, kApplicationClock, now.application_sm_clock);
  put(out, kApplicationMemoryClock, now.application_memory_clock);
  return out;
}

Result<void> ClockControl::write_knob(const KnobInfo& knob, const KnobValue& value) {
  const std::string_view name = knob.name;
  if (name == kClockLock) return lock_sm_clock(Megahertz(value.lowest), Megahertz(value.highest));
  if (name == kMemoryLock)
    return lock_memory_clock(Megahertz(value.lowest), Megahertz(value.highest));
  if (name == kPowerLimit) return set_power_limit(Watts(value.highest));
  return not_written(knob);
}

Result<void> ClockControl::reset_knob(const KnobInfo& knob) {
  if (knob.name == std::string_view(kClockLock)) return reset_sm_clock();
  if (knob.name == std::string_view(kMemoryLock)) return reset_memory_clock();
  return not_written(knob);
}

}  // namespace derate
