// Our own method: learns each tenant's watts from the board's power while it runs.
#pragma once

#include <memory>

#include "attrib/power_kalman_filter.h"
#include "attrib/split.h"

namespace derate {

// Chosen on seeds 1000 to 1005 of the lab's tenant worlds (docs/attribute-results.md). Processes
// without MIG are split by make_process_split().
struct OnlineOptions {
  WattAging aging;
  bool lag_bank = true;  // five filters for a power that comes up to a second late
  // A tenant's mix of units changed: where doubt begins, and is full; of 1 - cosine.
  double same_mix = 0.002, other_mix = 0.05;
  // Uncertainty beyond the filter's own: of a tenant's watts, and of what the bend makes of them.
  double model_sd = 0.02, bend_part = 0.3;
  double context_part = 0.8;  // of the context's own uncertainty
  double sigma_scale = 0.85;  // the filter's noise counts twice (power_kalman_filter.cc)
};

std::unique_ptr<SplitMethod> make_online(const BoardFacts& board, const OnlineOptions& options);
// With the defaults, for the table of methods.
std::unique_ptr<SplitMethod> make_online_split(const BoardFacts& board);

}  // namespace derate
