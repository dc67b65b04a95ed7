// Settings of a GPU that other tools make. They change the speed or the power of a clock. Derate
// reads and shows them, and sets none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_value.h"

namespace derate {

// A driver's hint for the clocks of GeForce and workstation GPUs; NVML's names.
enum class PowerMizer : std::uint8_t {
  adaptive,
  maximum_performance,
  automatic,
  consistent_performance
};

enum class Virtualisation : std::uint8_t { none, passthrough, guest, host };

// NVIDIA's workload power profiles, by their names: "max_q".
struct PowerProfiles {
  std::vector<std::string> requested, enforced;
  // Of the requested ones, each pair that excludes each other.
  std::vector<std::pair<std::string, std::string>> conflicts;

  bool operator==(const PowerProfiles&) const = default;
};

struct GpuModes {
  std::optional<int> sm_clock_offset, memory_clock_offset;  // MHz, of the performance state P0
  std::optional<PowerMizer> power_mizer;
  std::optional<PowerProfiles> power_profiles;
  std::optional<bool> display;  // one is attached
  std::optional<Virtualisation> virtualisation;

  bool operator==(const GpuModes&) const = default;
};

// Empty, or of a GPU that offers none.
using SharedModes = SharedValue<GpuModes>;

const char* to_string(PowerMizer mode);
const char* to_string(Virtualisation virtualisation);

// The difference of a GPU with these from one as its maker ships it: " +150 MHz max_q"; empty
// without any. Models of one do not hold for another.
std::string modes_key(const GpuModes& modes);

// Whether a GPU with one set needs other models than with the other. A setting that is missing in
// one of them, as after a call that failed, counts as unchanged.
bool differ(const GpuModes& one, const GpuModes& other);

// Each setting that the driver offers, as it is now: "clock offsets 0 MHz, PowerMizer adaptive";
// empty where it offers none.
std::string list_of(const GpuModes& modes);

// A sentence for each setting that another tool has changed, joined by "; "; empty: none.
std::string describe(const GpuModes& modes);

}  // namespace derate
