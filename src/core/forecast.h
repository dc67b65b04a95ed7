// The outcome of the present work at other clocks and under other promises, before anything is
// changed.
#pragma once

#include "base/units.h"
#include "core/saving.h"

namespace derate {

// Of the minutes after that clock is held, in shares against the same work at the highest clock.
struct ForecastPoint {
  Megahertz clock{};
  Watts power{};
  ShareEstimate saving, loss;  // of energy, of performance; where each lies with 90 % probability
  Fraction least{0};           // performance, as sure as the policy is of a promise that it keeps

  Fraction performance() const { return Fraction(1 - loss.mean); }
  bool operator==(const ForecastPoint&) const = default;
};

// Of the minutes after it is promised.
struct Forecast {
  double delta = 0;  // the loss of performance that would be allowed
  Megahertz clock{};
  ShareEstimate saving, loss;

  bool operator==(const Forecast&) const = default;
};

}  // namespace derate
