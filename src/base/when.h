// Times as people write them: 2026-11-01, 2026-11-01T12:00, 2026-11-01T12:00+01:00, 14:30, -7d,
// now-7d, @1761955200, today, month, now.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace derate {

// In local time; a Z at the end of a date with a time means UTC, +01:00 so far ahead of it. Of an
// hour that comes twice the first is meant, one that is left out in spring is the moment at which
// clocks are put forward. Errors: invalid_argument naming what is allowed.
Result<WallTime> parse_when(std::string_view text, WallTime now);

// What the calendar and the clock on the wall say then.
struct LocalTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};
LocalTime local_time(WallTime time);

// "2026-11-01 12:00" in local time.
std::string when_text(WallTime time);

// "2026-11-01 12:00:05" in local time.
std::string second_text(WallTime time);
// "2026-11-01T12:00:05Z": of UTC, as parse_when() reads it wherever it is.
std::string utc_text(WallTime time);

// "2026-11-01" in local time.
std::string day_text(WallTime time);

// Of local time then: "CEST", "+0530".
std::string zone_text(WallTime time);

// 00:00 of its day, local time.
WallTime day_begin(WallTime time);

// 00:00 of the day after its day, local time.
WallTime day_after(WallTime time);

// 00:00 of the first day of its month, local time.
WallTime month_begin(WallTime time);

}  // namespace derate
