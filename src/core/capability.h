// Capabilities of a GPU: its identity, clocks, limits and sensors; read once, when the GPU is
// opened.
#pragma once

#include <optional>
#include <vector>

#include "base/units.h"
#include "core/gpu_id.h"
#include "core/gpu_modes.h"

namespace derate {

// Generations differ in what their sensors mean (docs/sensors.md), so it is part of the capability.
enum class Architecture { unknown, pascal, volta, turing, ampere, ada, hopper, blackwell };

struct PowerLimits {
  Watts lowest, highest;  // what the driver accepts
  Watts factory;          // its default
};

// A memory clock, and the SM clocks that a driver lists with it.
struct MemoryClock {
  Megahertz clock;
  std::vector<Megahertz> sm_clocks;  // ascending

  bool operator==(const MemoryClock&) const = default;
};

struct Capability {
  GpuId id;
  Architecture architecture = Architecture::unknown;
  std::vector<Megahertz>
      sm_clocks;  // supported, ascending; empty when the driver does not list them
  std::vector<Megahertz> memory_clocks;  // supported, ascending
  // The SM clocks that the driver lists with the lower memory clocks; `sm_clocks` go with the
  // highest.
  std::vector<MemoryClock> lower_memory_clocks;  // descending
  std::optional<PowerLimits> power_limits;
  std::optional<Celsius> slowdown_temperature;  // where the hardware starts to throttle
  // The highest clock that still runs at the lowest voltage: below it a clock saves little.
  // Known from the chip catalogue (core/chip_facts.h) or from the configuration.
  std::optional<Megahertz> flat_voltage_end;
  // Off, the driver forgets a GPU's settings when the last process leaves it.
  std::optional<bool> persistence_mode;
  bool energy_counter = false;
  bool instant_power = false;      // field 186
  bool averaged_power = false;     // field 185
  bool activity_counters = false;  // GPM: Hopper and later
  bool process_list = false;
  bool memory_lock = false;  // the memory clock may be locked at a lower one
  GpuModes modes;            // as they were then
};

const char* to_string(Architecture architecture);

}  // namespace derate
