// The settings of a knob that a job's GPUs may be given.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/capability.h"
#include "core/envelope.h"

namespace derate {

enum class Knob : std::uint8_t { power_limit, clock };

// "power-limit", "clock". Errors: invalid_argument, with what is allowed.
Result<Knob> parse_knob(std::string_view text);
const char* to_string(Knob knob);
// "W", "MHz".
const char* unit_of(Knob knob);

struct KnobSettings {
  std::vector<double> settings;  // ascending, not empty; W of each GPU, or MHz
  double resolution = 0;         // what is nearer together is as good as one
};

// One of the job's GPUs and the limit that was found on it; empty: not known.
struct LimitedGpu {
  const Capability* gpu = nullptr;
  std::optional<Watts> found;
};

// From the highest limit down in strides of 25 W, as Zeus has them, and finer where that gives few.
// The highest is the lowest of those found, for nobody is to be given more power than before, or
// `highest` where the user says so.
// Errors: not_supported where a driver lets nobody set the limit; invalid_argument where `highest`
// is not one of all of the GPUs, or they have none in common.
Result<KnobSettings> limit_settings(std::span<const LimitedGpu> gpus,
                                    std::optional<Watts> highest = {});

// The clocks that all envelopes have. Errors: invalid_argument where there is none.
Result<KnobSettings> clock_settings(std::span<const Envelope> envelopes);

}  // namespace derate
