// The outcome of other clocks, by what `assure` has learned of the work.
#pragma once

#include <vector>

#include "core/forecast.h"
#include "policy/assure/chooser.h"

namespace derate {

// By the envelope's clocks upwards.
std::vector<ForecastPoint> forecast_points(const Outlook& outlook);

}  // namespace derate
