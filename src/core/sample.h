// A reading of a GPU's sensors. A field that the GPU does not give, or that could not be read, is
// empty: never 0, never a sentinel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/card_reading.h"
#include "core/field.h"
#include "core/gpu_modes.h"

namespace derate {

// Where a sample comes from.
enum class SampleSource : std::uint8_t { simulated, nvml, replayed };

// Why the clock is below what was asked: NVML's reason bits, by their names there.
namespace throttle {
inline constexpr std::uint64_t kGpuIdle = 0x1;
inline constexpr std::uint64_t kApplicationsClocksSetting = 0x2;
inline constexpr std::uint64_t kSwPowerCap = 0x4;
inline constexpr std::uint64_t kHwSlowdown = 0x8;
inline constexpr std::uint64_t kSyncBoost = 0x10;
inline constexpr std::uint64_t kSwThermalSlowdown = 0x20;
inline constexpr std::uint64_t kHwThermalSlowdown = 0x40;
inline constexpr std::uint64_t kHwPowerBrakeSlowdown = 0x80;
inline constexpr std::uint64_t kDisplayClockSetting = 0x100;
inline constexpr std::uint64_t kThermal = kSwThermalSlowdown | kHwThermalSlowdown;
}  // namespace throttle

// Activity counters (GPM on Hopper and later), means over the counter's last window. Each is the
// share of cycles in which the unit was busy; dram is the share of the peak bandwidth.
struct Activity {
  std::optional<Fraction> graphics, sm, occupancy, integer, tensor, dram, fp64, fp32, fp16;
  std::optional<BytesPerSecond> pcie_tx, pcie_rx;

  bool operator==(const Activity&) const = default;
};

// The shares of it by name, in the order of documents.
struct ActivityShare {
  const char* name;
  std::optional<Fraction> Activity::*member;
};
std::span<const ActivityShare> activity_shares();

struct Sample {
  Instant time{};  // when the reading began, on the governor's clock
  SampleSource source = SampleSource::simulated;
  std::optional<Fraction> gpu_utilisation;  // share of the period with at least one kernel running
  std::optional<Fraction> memory_utilisation;  // share of the period with memory traffic
  std::optional<Megahertz> sm_clock, memory_clock;
  std::optional<Watts>
      power_usage;  // nvmlDeviceGetPowerUsage: 1 s mean on Ampere (not GA100) and later
  std::optional<Watts> power_instant;  // field 186
  std::optional<Watts> power_average;  // field 185
  std::optional<Joules> energy;        // counter since the driver was loaded; read at 1 Hz
  std::optional<Celsius> temperature;
  std::optional<std::uint64_t> throttle_reasons;  // throttle:: bits
  Activity activity;
  std::optional<int> tenants;  // processes that hold a compute context; read at 1 Hz
  std::vector<FieldRead> read_apart;
  SharedModes modes;  // read each minute; empty: not read
  SharedCard card;    // read every few seconds; empty: not read

  bool operator==(const Sample&) const = default;
};

// Field by field, by one table (sample.cc).
const char* to_string(Field field);
bool has(const Sample& sample, Field field);
bool same(const Sample& a, const Sample& b, Field field);
void copy(const Sample& from, Field field, Sample& to);
// When and by whom the field was read.
FieldRead read_of(const Sample& sample, Field field);

// What to read: the expensive fields (an energy read costs 3 ms, GPM 1.5 ms, a list of processes up
// to 38 us and more with their number on an H200) only when due.
struct ReadPlan {
  bool energy = true;
  bool activity = true;
  bool processes = true;
};

// A process with a context on the GPU.
struct GpuProcess {
  std::int64_t pid = 0;
  std::string name;  // empty when it may not be read
  std::optional<double> memory_bytes;
  // The driver's means since it was last read, of the whole GPU's time; integer percent. Of a
  // process that has the GPU alone, the GPU's utilisation.
  std::optional<Fraction> sm_utilisation, memory_utilisation;
  std::optional<int> gpu_instance;  // with MIG: where it runs
  bool computes = true;             // false: graphics only
  bool operator==(const GpuProcess&) const = default;
};

const char* to_string(SampleSource source);

// The reasons by name, ascending by bit.
struct ThrottleReason {
  std::uint64_t bit;
  const char* name;  // "power limit"
};
inline constexpr std::size_t kThrottleReasons = 9;
std::span<const ThrottleReason, kThrottleReasons> throttle_reasons();

// "power limit, thermal (software)": the reasons in `bits` in words; "none" for 0.
std::string describe_throttle(std::uint64_t bits);

}  // namespace derate
