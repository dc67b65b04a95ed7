// Forecast of the saving and loss that promises would come to for work with few readings, from the
// curves of measured applications that are like it (curve_rows). Likeness goes by the readings at
// the GPU's own clock, or by the performance and energy estimated at the clock that a policy held.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/envelope.h"
#include "core/forecast.h"

namespace derate {

struct SeenWork {
  Megahertz clock{};  // that was held: the highest, unless something below says otherwise
  Fraction gpu_utilisation{1};
  std::optional<Fraction> memory_utilisation;
  bool capped = false;  // the power limit held that clock: it is what others are compared with
  // A policy held the clock: performance and energy for the same work, relative to the highest.
  struct Held {
    Fraction performance{1}, energy{1};
    double sd = 0;  // of either, as believed
  };
  std::optional<Held> held;
};

// Of each delta the clock of least energy whose loss is three quarters of it at most, about what
// `assure` uses of a promise; the mean of the applications by their likeness, and where their
// scatter lets the next one lie with 90 % probability. `without`: the application of that name is
// left out. The constants were chosen on applications of the V100 and A100 (docs/saving.md says how
// true it is, and of what).
std::vector<Forecast> forecast_by_alike(std::string_view chip, const Envelope& envelope,
                                        const SeenWork& work, std::span<const double> deltas,
                                        std::string_view without = {});

}  // namespace derate
