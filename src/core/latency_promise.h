// A promise of latency as people write it, such as "itl p99 <= 50 ms".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/promise.h"
#include "core/serving_state.h"

namespace derate {

// "itl pN <= TIME": N percent of the intervals from a token to the next take at most TIME. N is
// from 50 to 99.99, TIME from 1 ms to 60 s, with ms or s. Errors: invalid_argument with what is
// allowed.
Result<Promise> parse_latency(std::string_view text);

// The same text of such a promise.
std::string latency_text(const Promise& promise);

// The largest edge of the histogram that is not above the promised time: beyond it the count of
// late tokens is exact. Empty: there is none.
std::optional<double> promised_edge(const Promise& promise, const LatencyHistogram& counts);

}  // namespace derate
