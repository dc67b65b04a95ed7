// The detection of a change of a recurring job: the run since which its runs need other epochs, or
// other joules per epoch, than before.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tune/sizes/trial.h"

namespace derate {

// From trials[first] on.
struct SizeChange {
  std::size_t first = 0;
  bool epochs = false, cost = false;  // which of the two; the other goes on as it was

  bool operator==(const SizeChange&) const = default;
};

// In order. A change is seen in the last runs of one batch size, which are compared with all of its
// runs since the change before.
std::vector<SizeChange> find_changes(const SizeProblem& problem, std::span<const Trial> trials);

// J an epoch, as a run paid it, without what profiling cost; empty where it costs nothing or tells
// too little: without a whole epoch, unless it was at its target.
std::optional<double> paid_for_an_epoch(const Trial& trial);
// Of a run that has ended: log epochs to its target, or what is assumed where it did not get there.
// Empty where it tells nothing.
std::optional<double> log_epochs_of(const Trial& trial);

// Of a run that was at its target before its first epoch was over.
inline constexpr double kFewestEpochs = 0.5;
// A run that was stopped would have taken that much longer, in log.
inline constexpr double kCensoredStep = 0.25;
// Runs vary so much in log epochs before any were seen; counted as so many.
inline constexpr double kRunSd = 0.065, kRunWeight = 6;
// The same of what an epoch is paid.
inline constexpr double kPaidSd = 0.01, kPaidWeight = 2;
// The true count lies within half an epoch of the one seen; some jobs always take the same.
inline constexpr double kWholeEpochs = 0.125;

// Empty for a batch size that is none of the problem's.
std::optional<std::size_t> place_of(const SizeProblem& problem, int batch_size);

}  // namespace derate
