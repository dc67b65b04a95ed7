// The settings of a GPU that can be read back: what is journalled before the first write, and what
// a restore is checked against. NVML has no getter for locked clocks, so they are not among them.
#pragma once

#include <optional>

#include "base/units.h"

namespace derate {

struct ClockRange {
  Megahertz lowest, highest;

  bool operator==(const ClockRange&) const = default;
};

struct GpuSettings {
  std::optional<Watts> power_limit;  // as last asked for, by whomever
  std::optional<Megahertz> application_sm_clock, application_memory_clock;

  bool operator==(const GpuSettings&) const = default;
};

}  // namespace derate
