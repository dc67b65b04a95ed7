// Reads a trace back: docs/trace-format.md.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/capability.h"
#include "core/sample.h"

namespace derate {

// A phase begins. Its time is that of the first sample in it.
struct TraceLabel {
  Instant time{};
  std::string text;

  bool operator==(const TraceLabel&) const = default;
};

struct Trace {
  Capability capability;
  std::vector<Sample> samples;  // times ascend from Instant{}; source is replayed
  std::vector<TraceLabel> labels;
  std::vector<std::string> notes;  // what a user should know of the file, led by FILE:LINE
  WallTime start{};                // of the first sample
  Duration interval{};             // as the header tells; 0 when it does not
  std::map<std::string, std::string> tags;
};

// Errors: not_found, no_permission, io; bad_data: "FILE:LINE: value: what is allowed".
Result<Trace> read_trace(const std::string& path);

// The same of a text; `name` stands for the file in messages.
Result<Trace> parse_trace(std::string_view text, std::string_view name);

}  // namespace derate
