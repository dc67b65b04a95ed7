// What would come of the present work under another promise, told before anything is changed.
#pragma once

#include "base/units.h"
#include "core/saving.h"

namespace derate {

// Of the minutes after it is promised, in shares against the same work at the highest clock.
struct Forecast {
  double delta = 0;  // the loss of performance that would be allowed
  Megahertz clock{};
  ShareEstimate saving, loss;  // of energy, of performance; where each lies with 90 % probability

  bool operator==(const Forecast&) const = default;
};

}  // namespace derate
