// Utilisation, temperature, reasons, power, energy, field values, samples and memory.
#include <algorithm>
#include <cstring>

#include "core/sample.h"
#include "fakenvml/exports.h"
#include "fakenvml/session.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

constexpr unsigned int kPerformanceState = 0;  // P0
// Assumed: boards shut down this much above where they slow down, and want to stay below it.
constexpr unsigned int kShutdownAbove = 5, kMaximumBelow = 2;
constexpr unsigned long long kSupportedReasons = 0x1FF;

Return give_engine(const char* function, Device device, uint* percent, uint* period_us) {
  return on_gpu(function, device, [&](const Call& call) {
    if (percent == nullptr || period_us == nullptr) return Return::invalid_argument;
    *percent = 0;
    *period_us = call.identity().utilisation_period_us;
    return Return::success;
  });
}

// --- field values ---

void put(nvml::FieldValue& field, unsigned int value) {
  field.code = Return::success;
  field.type = nvml::ValueType::uint;
  field.value.uint = value;
}
void put_wide(nvml::FieldValue& field, unsigned long long value) {
  field.code = Return::success;
  field.type = nvml::ValueType::ulonglong;
  field.value.ulonglong = value;
}

// What the type does not name is rubbish.
void put(nvml::FieldValue& field, const InjectedReading& reading) {
  field.code = static_cast<Return>(reading.code);
  field.type = static_cast<nvml::ValueType>(reading.type);
  std::memset(&field.value, 0xa5, sizeof field.value);
  if (field.type == nvml::ValueType::real) field.value.real = reading.raw;
  if (field.type == nvml::ValueType::uint) field.value.uint = reading.raw;
  if (field.type == nvml::ValueType::ulonglong) field.value.ulonglong = reading.raw;
}

// Of the scopes (the GPU, a module, memory) there is only the first.
void fill(nvml::FieldValue& field, const GpuIdentity& identity, const GpuNow& now) {
  field.time_us = static_cast<long long>(now.time_us);
  field.latency_us = 0;
  field.code = Return::not_supported;
  const bool whole = field.scope == 0;
  switch (field.field) {
    case nvml::kFieldEccCurrent:
      put(field, 1);
      break;
    // No memory errors are simulated.
    case nvml::kFieldEccCorrected:
    case nvml::kFieldEccUncorrected:
      put_wide(field, 0);
      break;
    case nvml::kFieldPowerViolation:
      put_wide(field, now.violations.power_ns);
      break;
    case nvml::kFieldThermalViolation:
      put_wide(field, now.violations.thermal_ns);
      break;
    case nvml::kFieldEnergy:
      if (identity.driver.energy_counter != 0) put_wide(field, now.energy_mj);
      break;
    case nvml::kFieldPowerAverage:
      if (identity.has_average_power && whole) put(field, now.power_average_mw);
      break;
    case nvml::kFieldPowerInstant:
      if (identity.has_instant_power && whole) put(field, now.power_instant_mw);
      break;
    default:
      break;
  }
}

// --- samples ---

enum SampleType : unsigned int { kPower, kGpu, kMemory, kEncoder, kDecoder, kClock, kMemoryClock };

struct Ring {
  const TimedValue* values;
  std::size_t size;
  std::uint64_t count;  // ever
};

Ring ring_of(const GpuSamples& samples, unsigned int type) {
  if (type == kGpu || type == kMemory || type == kEncoder || type == kDecoder)
    return {samples.percent, kUtilisationSamples, samples.utilisation_count};
  return {samples.power_mw, kPowerSamples, samples.power_count};
}

unsigned int value_of(const TimedValue& sample, unsigned int type, const GpuIdentity& identity) {
  switch (type) {
    case kMemory:
    case kClock:
      return sample.other;
    case kEncoder:
    case kDecoder:
      return 0;
    case kMemoryClock:
      return identity.memory_clock_mhz;
    default:
      return sample.value;
  }
}

Return give_samples(const Call& call, unsigned int type, ulonglong since, uint* count,
                    nvml::Sample* out) {
  const auto samples = call.state().samples.read();
  if (!samples) return Return::gpu_is_lost;
  const Ring ring = ring_of(*samples, type);
  const std::uint64_t kept = std::min<std::uint64_t>(ring.count, ring.size);
  if (out == nullptr) {
    *count = static_cast<uint>(ring.size);
    return Return::success;
  }
  uint given = 0;
  for (std::uint64_t n = ring.count - kept; n < ring.count && given < *count; ++n) {
    const TimedValue& sample = ring.values[n % ring.size];
    if (sample.time_us <= since) continue;
    out[given].time_us = sample.time_us;
    out[given].value.ulonglong = 0;
    out[given++].value.uint = value_of(sample, type, call.identity());
  }
  *count = given;
  return given == 0 ? Return::not_found : Return::success;
}

std::uint64_t used_bytes(const Call& call) {
  std::uint64_t used = 0;
  if (const auto processes = call.state().processes.read())
    for (std::size_t i = 0; i < processes->count; ++i) used += processes->list[i].memory_bytes;
  return used;
}
// Assumed: what the driver keeps for itself.
constexpr std::uint64_t kReservedBytes = 512ull << 20;

}  // namespace

Return nvmlDeviceGetUtilizationRates(Device device, nvml::Utilization* out) {
  return with_now(__func__, device, [&](const Call&, const GpuNow& now) {
    if (out == nullptr) return Return::invalid_argument;
    if (now.gpu_percent == kNone || now.memory_percent == kNone) return Return::not_supported;
    *out = {now.gpu_percent, now.memory_percent};
    return Return::success;
  });
}
Return nvmlDeviceGetEncoderUtilization(Device device, uint* percent, uint* period_us) {
  return give_engine(__func__, device, percent, period_us);
}
Return nvmlDeviceGetDecoderUtilization(Device device, uint* percent, uint* period_us) {
  return give_engine(__func__, device, percent, period_us);
}

// Assumed: boards with a display have a fan. It runs at 30 % up to 45 C, and 2 % faster a degree
// above.
Return nvmlDeviceGetFanSpeed(Device device, uint* out) {
  constexpr uint kSlowest = 30, kQuietCelsius = 45, kStep = 2, kFastest = 100;
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (out == nullptr) return Return::invalid_argument;
    if (call.identity().driver.display == 0) return Return::not_supported;
    const uint above = std::max(now.temperature_celsius, kQuietCelsius) - kQuietCelsius;
    *out = std::min(kFastest, kSlowest + kStep * std::min(above, kFastest));
    return Return::success;
  });
}
Return nvmlDeviceGetFanSpeed_v2(Device device, uint fan, uint* out) {
  if (fan != 0) return Return::invalid_argument;
  return nvmlDeviceGetFanSpeed(device, out);
}

Return nvmlDeviceGetTemperature(Device device, nvml::TemperatureSensor sensor, uint* out) {
  return with_now(__func__, device, [&](const Call&, const GpuNow& now) {
    if (out == nullptr || sensor != nvml::TemperatureSensor::gpu) return Return::invalid_argument;
    *out = now.temperature_celsius;
    return Return::success;
  });
}
Return nvmlDeviceGetTemperatureThreshold(Device device, nvml::TemperatureThreshold which,
                                         uint* out) {
  constexpr uint kShutdown = 0, kSlowdown = 1, kGpuMaximum = 3, kThresholds = 8;
  return on_gpu(__func__, device, [&](const Call& call) {
    const auto number = static_cast<uint>(which);
    if (out == nullptr || number >= kThresholds) return Return::invalid_argument;
    const uint slowdown = call.identity().slowdown_celsius;
    if (number == kShutdown)
      *out = slowdown + kShutdownAbove;
    else if (number == kSlowdown)
      *out = slowdown;
    else if (number == kGpuMaximum)
      *out = slowdown - kMaximumBelow;
    else
      return Return::not_supported;
    return Return::success;
  });
}

GIVES(nvmlDeviceGetPerformanceState, uint, kPerformanceState)
GIVES(nvmlDeviceGetPowerState, uint, kPerformanceState)

GIVES_NOW(nvmlDeviceGetCurrentClocksThrottleReasons, ulonglong, now.throttle_reasons)
GIVES_NOW(nvmlDeviceGetCurrentClocksEventReasons, ulonglong, now.throttle_reasons)
GIVES(nvmlDeviceGetSupportedClocksThrottleReasons, ulonglong, kSupportedReasons)
GIVES(nvmlDeviceGetSupportedClocksEventReasons, ulonglong, kSupportedReasons)

Return nvmlDeviceGetViolationStatus(Device device, uint policy, nvml::ViolationTime* out) {
  constexpr uint kPower = 0, kThermal = 1, kPolicies = 12;
  return with_now(__func__, device, [&](const Call&, const GpuNow& now) {
    if (out == nullptr || policy >= kPolicies) return Return::invalid_argument;
    *out = {now.time_us, 0};
    if (policy == kPower) out->violation_ns = now.violations.power_ns;
    if (policy == kThermal) out->violation_ns = now.violations.thermal_ns;
    return Return::success;
  });
}

Return nvmlDeviceGetFieldValues(Device device, int count, nvml::FieldValue* values) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (values == nullptr || count <= 0) return Return::invalid_argument;
    for (int i = 0; i < count; ++i) {
      fill(values[i], call.identity(), now);
      if (const auto injected = call.injected(Reading::field, values[i].field))
        put(values[i], *injected);
    }
    return Return::success;
  });
}

Return nvmlDeviceGetSamples(Device device, uint type, ulonglong last_seen_us,
                            nvml::ValueType* value_type, uint* count, nvml::Sample* samples) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (value_type == nullptr || count == nullptr || type > kMemoryClock)
      return Return::invalid_argument;
    // An H200 keeps no clocks.
    if (type >= kClock && call.identity().architecture >= nvml::kArchHopper)
      return Return::not_found;
    *value_type = nvml::ValueType::uint;
    return give_samples(call, type, last_seen_us, count, samples);
  });
}

Return nvmlDeviceGetMemoryInfo(Device device, nvml::Memory* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    const std::uint64_t total = call.identity().memory_bytes;
    const std::uint64_t used = std::min(total, used_bytes(call) + kReservedBytes);
    *out = {total, total - used, used};
    return Return::success;
  });
}
Return nvmlDeviceGetMemoryInfo_v2(Device device, nvml::MemoryV2* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    if (out->version != nvml::kMemoryV2) return Return::argument_version_mismatch;
    const std::uint64_t total = call.identity().memory_bytes;
    const std::uint64_t used = std::min(total - kReservedBytes, used_bytes(call));
    *out = {nvml::kMemoryV2, total, kReservedBytes, total - kReservedBytes - used, used};
    return Return::success;
  });
}
Return nvmlDeviceGetBAR1MemoryInfo(Device device, nvml::Bar1Memory* out) {
  return on_gpu(__func__, device, [&](const Call& call) {
    if (out == nullptr) return Return::invalid_argument;
    const std::uint64_t total = call.identity().memory_bytes;
    *out = {total, total, 0};
    return Return::success;
  });
}

// No traffic is simulated.
Return nvmlDeviceGetPcieThroughput(Device device, uint counter, uint* out) {
  return on_gpu(__func__, device, [&](const Call&) {
    if (out == nullptr || counter > 1) return Return::invalid_argument;
    *out = 0;
    return Return::success;
  });
}
GIVES(nvmlDeviceGetPcieReplayCounter, uint, 0)
Return nvmlDeviceGetTotalEccErrors(Device device, uint, uint, ulonglong* out) {
  return give(__func__, device, out, [](const Call&) { return 0; });
}
Return nvmlDeviceGetFBCStats(Device device, nvml::FbcStats* out) {
  return on_gpu(__func__, device, [&](const Call&) {
    if (out == nullptr) return Return::invalid_argument;
    *out = {};
    return Return::success;
  });
}
Return nvmlDeviceGetEncoderStats(Device device, uint* count, uint* fps, uint* latency) {
  return on_gpu(__func__, device, [&](const Call&) {
    if (count == nullptr || fps == nullptr || latency == nullptr) return Return::invalid_argument;
    *count = *fps = *latency = 0;
    return Return::success;
  });
}

GIVES_NOW(nvmlDeviceGetPowerUsage, uint, now.power_mw)
Return nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* out) {
  return with_now(__func__, device, [&](const Call& call, const GpuNow& now) {
    if (out == nullptr) return Return::invalid_argument;
    if (call.identity().driver.energy_counter == 0) return Return::not_supported;
    *out = now.energy_mj;
    return Return::success;
  });
}

}  // namespace derate::fakenvml
