// An axis of time below a chart: marks at round times of the clock on the wall.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/units.h"
#include "terminal/frame.h"

namespace derate {

struct TimeTick {
  std::size_t column = 0;
  std::string label;  // "12:00", "12:00:30", "Nov 2", "2026-11"

  bool operator==(const TimeTick&) const = default;
};
// As many as have room in `width` columns for their labels, which begin at their columns: round
// seconds, minutes, hours, days or months of local time. One that clocks leave out has none, one
// that comes twice has two where there is room.
std::vector<TimeTick> time_ticks(WallTime from, WallTime to, std::size_t width);

// A line with marks and one with labels, exactly `width` columns each.
struct TimeAxis {
  std::string marks, labels;
};
TimeAxis time_axis(WallTime from, WallTime to, std::size_t width, const Look& look);

// "2026-11-01 06:00 to 12:00 CET": with each end's zone where they differ, and with seconds where
// it is short.
std::string period_text(WallTime from, WallTime to);

}  // namespace derate
