// Reader of the files that `derate attribute --ticks` writes, line by line: the GPUs first, then
// their readings.
#pragma once

#include <string_view>
#include <vector>

#include "attrib/gpu_attribution.h"
#include "base/result.h"

namespace derate {

inline constexpr int kTicksFormat = 1;

// Whatever the bytes, a line gives a value or an error. Errors: bad_data.
class TicksReader {
 public:
  // `head`: the file's first line.
  static Result<TicksReader> create(std::string_view head, const AttributionRules& rules);
  // Whether the reading made a tick of its GPU.
  Result<bool> take(std::string_view line);
  const std::vector<GpuAttribution>& boards() const { return boards_; }

 private:
  std::vector<GpuAttribution> boards_;
};

}  // namespace derate
