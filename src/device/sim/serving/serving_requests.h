// Requests to a simulated engine: those of a recorded trace, thinned, or drawn.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/sim/serving/serving_engine.h"

namespace derate {

// CSV with the columns arrival_s (ascending), prompt_tokens and generated_tokens. Errors: bad_data
// naming FILE:LINE, the column and the value.
Result<std::vector<ServingRequest>> parse_requests(std::string_view csv, std::string_view file);
// The same of a file. Errors: those, not_found, no_permission, io.
Result<std::vector<ServingRequest>> load_requests(const std::string& path);

// The trace so many times in a row, `length_s` each; each request is kept with that probability,
// drawn anew each time.
struct Thinning {
  double length_s = 1800;
  int times = 1;
  double keep = 1;
  std::uint64_t seed = 1;
};
std::vector<ServingRequest> thinned(std::span<const ServingRequest> trace, const Thinning& how);

// Half an hour of requests where there is no trace, five a second: log-normal sizes with the
// medians 900 and 150 tokens. Assumed: about those of the Azure 2023 trace of conversations.
std::vector<ServingRequest> assumed_trace(std::uint64_t seed);

// Requests that come at random, `rate` a second, their sizes those of the trace's in any order;
// in bursts the rate is that many times as high.
struct DrawnArrivals {
  double rate = 1, until_s = 3600;
  double burst_times = 1;              // the rate's factor
  double burst_at_s = 0, burst_s = 0;  // from, length; none if 0
  std::uint64_t seed = 1;
};
std::vector<ServingRequest> drawn_requests(std::span<const ServingRequest> trace,
                                           const DrawnArrivals& how);

}  // namespace derate
