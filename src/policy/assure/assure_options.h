// The options of `assure`: the parameters of the same names (docs/policies/assure.md), and what the
// GPU and the maker of the policy add to them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "base/units.h"
#include "core/model_cache.h"

namespace derate {

struct AssureOptions {
  Megahertz highest{};
  double delta = 0, confidence = 0, tick = 0, overstated = 0;
  Duration settle{}, reference{};
  std::string prior;  // a chip of the rows; empty: all
  bool leave_out = false;
  bool ignore_counters = false;
  bool foreign = false;  // CurvePriors
  bool dry_run = false;
  std::string chip;
  ModelCache* models = nullptr;

  // x of that clock: the log of the highest clock over it.
  double position(Megahertz clock) const { return std::max(0.0, std::log(highest / clock)); }
};

}  // namespace derate
