// The GPUs that trials can have: which of them a request means, and what their time costs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/gpu_id.h"
#include "tune/knob.h"

namespace derate {

// A GPU that trials can have.
struct TuneGpu {
  GpuId id;
  std::string chip;
  std::optional<Watts> highest_limit;
};

// Those of `open` that a request's text names; without a text, the only one.
// Errors: busy when none is open, invalid_argument when there are several and none is named, those
// of select_gpus().
Result<std::vector<TuneGpu>> choose_gpus(std::span<const TuneGpu> open, const std::string& text);
// Those of `open` with these UUIDs, in their order; empty when one of them is not open.
std::optional<std::vector<TuneGpu>> find_gpus(std::span<const TuneGpu> open,
                                              std::span<const std::string> uuids);
std::vector<std::string> uuids_of(std::span<const TuneGpu> gpus);
// The most that they together may draw: what a cost (cost_of()) weighs time with.
// Errors: not_supported when the selector weighs time and a GPU does not tell its highest limit.
Result<Watts> max_power_of(std::span<const TuneGpu> gpus, const Selector& selector);

}  // namespace derate
