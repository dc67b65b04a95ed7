// The outcome of other promises, by what `assure` has learned of the work.
#pragma once

#include <span>
#include <vector>

#include "core/forecast.h"
#include "policy/assure/chooser.h"

namespace derate {

// One for each delta.
std::vector<Forecast> forecasts(std::span<const double> deltas, const Outlook& outlook);

}  // namespace derate
