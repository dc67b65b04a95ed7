// Our own method: learns each tenant's watts from the board's power while it runs.
#pragma once

#include <memory>

#include "attrib/split.h"
#include "attrib/watt_filter.h"

namespace derate {

struct OnlineOptions {
  WattAging aging;
  bool lag_bank = true;                  // five filters for a power that comes up to a second late
  double gain_sd = 0.25, unit_sd = 0.2;  // WattPrior
  double bend_sd = 0.2, units_sd = 1;
  double same_mix = 0.002, other_mix = 0.05;  // of 1 - cosine: where doubt begins, and is full
  double to_base = 1;
  // Uncertainty of a tenant's watts beyond the filter's own, as a part of them.
  double model_sd = 0.02;
  double sigma_scale = 1;
};

std::unique_ptr<SplitMethod> make_online(const BoardFacts& board, const OnlineOptions& options);
// With the defaults, for the table of methods.
std::unique_ptr<SplitMethod> make_online_split(const BoardFacts& board);

}  // namespace derate
