// The schedule of a GPU's ticks.
#pragma once

#include <optional>

#include "base/units.h"

namespace derate {

struct Schedule {
  Duration period{};  // zero: every tick of the governor
  std::optional<Instant> next = {};
};

// Whether it is due, and if so the next time. The schedule keeps its phase when a tick comes late,
// and skips what was missed. A tick that comes a little early is on time: loop and schedule often
// have the same period.
bool take_due(Schedule& schedule, Instant now);

}  // namespace derate
