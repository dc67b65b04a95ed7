// Times as people write them: 2026-11-01, 2026-11-01T12:00, -7d, now.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace derate {

// In local time; a Z at the end of a date with a time means UTC. Of an hour that comes twice the
// first is meant, one that is left out in spring is the moment at which clocks are put forward.
// Errors: invalid_argument naming what is allowed.
Result<WallTime> parse_when(std::string_view text, WallTime now);

// "2026-11-01 12:00" in local time.
std::string when_text(WallTime time);

// "2026-11-01" in local time.
std::string day_text(WallTime time);

// 00:00 of the day after its day, local time.
WallTime day_after(WallTime time);

// 00:00 of the first day of its month, local time.
WallTime month_begin(WallTime time);

}  // namespace derate
