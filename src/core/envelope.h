// The clocks that the administrator allows, as a list of supported clocks.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

// Never empty; ascending; every clock is one that the GPU supports.
class Envelope {
 public:
  // The supported clocks within [lowest, highest].
  // Errors: invalid_argument when none lies there; the message gives the supported range.
  static Result<Envelope> create(std::span<const Megahertz> supported, Megahertz lowest,
                                 Megahertz highest);

  std::span<const Megahertz> clocks() const { return clocks_; }
  Megahertz lowest() const { return clocks_.front(); }
  Megahertz highest() const { return clocks_.back(); }

  // The lowest allowed clock that is at least `wanted`; the highest when there is none. Rounding up
  // is the safe side for performance.
  Megahertz clamp(Megahertz wanted) const;
  // The allowed clock nearest to `wanted`; the higher of two equally near.
  Megahertz nearest(Megahertz wanted) const;
  // The allowed clock `steps` places away from `clock` (negative: down), kept within the envelope.
  Megahertz stepped(Megahertz clock, int steps) const;

 private:
  explicit Envelope(std::vector<Megahertz> clocks) : clocks_(std::move(clocks)) {}
  std::vector<Megahertz> clocks_;
};

// The clock that a driver sets for a clock between two steps: the lower step. Assumed: not
// documented, seen with the simulated driver only. Empty: the clock is outside the supported ones
// (ascending).
std::optional<Megahertz> step_of(std::span<const Megahertz> supported, Megahertz wanted);

}  // namespace derate
