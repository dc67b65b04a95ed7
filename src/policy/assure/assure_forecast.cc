#include "policy/assure/assure_forecast.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kHeld = 0.008;  // sd of x, of the clock held in the mean
// How much wider performance is spread than the curve's sd for an application that the priors do
// not have: chosen on applications that were left out.
constexpr double kUnseen = 1.5;

// A share 1 - exp(log), and where it lies.
ShareEstimate below_one(const Belief& log) {
  const auto share = [&](double z) { return 1 - std::exp(log.mean + z * log.sd); };
  return {share(0), share(kNinety), share(-kNinety)};
}

// Log of the energy that work takes at x over that at the reference. Power and progress are learned
// together; the same power over the progress that counters alone tell is another opinion, and what
// the two differ by is not known.
Belief energy_of(const WorkPhase& phase, double x) {
  const Belief reference = phase.energy_at_reference(x);
  const std::size_t power = phase.curves.signals.size();
  const ProgressCurve& metered = phase.curves.metered;
  const double power_there =
      metered.reading(power, x).mean - metered.reading(power, phase.reference.x).mean;
  const double other = power_there - phase.performance(x).mean;
  return {-reference.mean, std::hypot(reference.sd, (other + reference.mean) / 2)};
}

// What is believed at x, where the clock held will be that one or one near.
template <class Curve>
Belief held_about(double x, const Curve& curve) {
  const Belief there = curve(x);
  const double slope = (curve(x + kHeld).mean - curve(std::max(0.0, x - kHeld)).mean) / 2;
  return {there.mean, std::hypot(there.sd, slope)};
}

ForecastPoint point_at(Megahertz clock, const Outlook& outlook) {
  const WorkPhase& phase = *outlook.belief.phase;
  // Above what the power limit lets be held there is nothing.
  const double x =
      std::max(outlook.options.position(clock), phase.reference.capped ? phase.reference.x : 0.0);
  const auto energy = [&](double at) { return energy_of(phase, at); };
  const auto performance = [&](double at) {
    const Belief out = phase.performance(at);
    return Belief{out.mean, kUnseen * out.sd};
  };
  return {.clock = clock,
          .power = Watts(std::exp(phase.curves.power.power(x).mean)),
          .saving = below_one(held_about(x, energy)),
          .loss = below_one(held_about(x, performance)),
          .least = Fraction(std::exp(outlook.belief.lower_bound(x)))};
}

}  // namespace

std::vector<ForecastPoint> forecast_points(const Outlook& outlook) {
  std::vector<ForecastPoint> out;
  for (const Megahertz clock : outlook.envelope.clocks()) out.push_back(point_at(clock, outlook));
  return out;
}

}  // namespace derate
