// Prediction of a running trial's epochs to the target, from its metric so far and the marks of the
// runs before it (learning curves).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "tune/sizes/trial.h"

namespace derate {

struct EpochsReading {
  double log_epochs = 0;  // of the whole run, to its target
  double variance = 0;    // of that
};

// From how far the last runs of trials[first...] that reached the target, of any batch size, had
// come with the metric that trials[running] has now: the rest of it is expected to be slower or
// faster than theirs by as much as it was so far. Empty before its first epoch is over, and where
// it or all of them have no marks.
std::optional<EpochsReading> foretell_epochs(const SizeProblem& problem,
                                             std::span<const Trial> trials, std::size_t first,
                                             std::size_t running);

// So many runs are looked at.
inline constexpr std::size_t kMostCurves = 8;

}  // namespace derate
