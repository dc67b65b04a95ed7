// A power limit that somebody has set on a GPU of the lab: always, or in turns with the chip's own.
#pragma once

#include <optional>

#include "base/units.h"

namespace derate {

struct PowerCap {
  std::optional<Watts> limit;  // empty: the chip's own alone
  // It is on in the first half of each such time of a job, the chip's own in the second; zero:
  // always on.
  Duration every{};

  // The limit that holds after so much of a job.
  Watts at(Duration time, Watts own) const {
    const bool on = every <= Duration{} || 2 * (time % every) < every;
    return limit && on ? *limit : own;
  }
};

}  // namespace derate
