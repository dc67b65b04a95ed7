// The state of an engine that serves a language model, read from its metrics. Each value is empty
// if the engine does not show it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"

namespace derate {

// A double does not hold every whole number above 2^53, so that no counter can be right there.
inline constexpr double kMostCounted = 9007199254740992.0;

// Latencies counted by upper edges, as Prometheus has them: counts are cumulative, the last is of
// all. As many edges as counts less one, ascending, in seconds.
struct LatencyHistogram {
  std::vector<double> edges_s;
  std::vector<double> counts;
  double sum_s = 0;

  bool operator==(const LatencyHistogram&) const = default;
};

struct ServingState {
  Instant time{};                          // when it was read
  std::uint64_t run = 0;                   // another number: the engine's counters began anew
  std::optional<double> running, waiting;  // requests
  std::optional<double> kv_share;          // of the room for contexts, 0 to 1
  // Since the engine began.
  std::optional<double> prompt_tokens, generated_tokens, steps;
  std::optional<LatencyHistogram> between_tokens, first_token;

  bool operator==(const ServingState&) const = default;
};

using SharedServingState = std::shared_ptr<const ServingState>;

}  // namespace derate
