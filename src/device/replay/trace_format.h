// Derate's trace format (docs/trace-format.md): its magic line, its header and its one table of
// columns, which the writer, the reader and the documentation's test share.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "core/capability.h"
#include "device/replay/column.h"

namespace derate {

inline constexpr std::string_view kTraceMagic = "#derate-trace 1";
inline constexpr std::string_view kTraceTimeColumn = "t_us";
inline constexpr std::string_view kTraceLabel = "#label";
inline constexpr std::string_view kTraceDitto = "\"";
// A row's time lies in [0, this] (31 years): no sum with a start before 2200 can overflow.
inline constexpr std::int64_t kTraceLongestUs = 1'000'000'000'000'000;

// All columns but the time, in the order in which they are written.
std::span<const Column> trace_columns();

// Line 2 of a trace.
struct TraceHeader {
  Capability capability;
  WallTime start{};                         // the wall clock at t_us = 0; kept to the microsecond
  Duration interval{};                      // at which samples were meant to be taken; 0: not told
  std::map<std::string, std::string> tags;  // free-form: host, job, what was run
};

// One line of JSON, without the leading '#' and the line's end.
std::string format_header(const TraceHeader& header);

// Keys that are not known are skipped. Errors: bad_data names the key, its value, what is allowed.
Result<TraceHeader> parse_header(std::string_view json);

}  // namespace derate
