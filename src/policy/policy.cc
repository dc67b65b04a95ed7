#include "policy/policy.h"

#include <algorithm>

namespace derate {

std::vector<Forecast> forecasts(const Policy& policy, std::span<const double> deltas,
                                const Envelope& envelope) {
  const std::vector<ForecastPoint> points = policy.forecast(envelope);
  std::vector<Forecast> out;
  for (const double delta : deltas) {
    const auto clock = policy.would_hold(delta, envelope);
    const auto at = std::find_if(points.begin(), points.end(),
                                 [&](const ForecastPoint& each) { return each.clock == clock; });
    if (at != points.end()) out.push_back({delta, at->clock, at->saving, at->loss});
  }
  return out;
}

}  // namespace derate
