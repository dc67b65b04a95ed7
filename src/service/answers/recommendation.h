// Recommendation of a promise from a GPU's history: what was saved and lost under the promises that
// were made, and what others would have come to.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/history_requests.h"
#include "base/result.h"
#include "core/capability.h"
#include "core/forecast.h"

namespace derate {

// The time that one policy governed, while there was work.
struct GovernedTime {
  std::string policy;
  Duration time{};
  Joules energy{};
  // Of the time for which an estimate is known.
  std::optional<ShareEstimate> saving;
  std::optional<Fraction> performance, promised;  // means
  Duration broken{};                              // below the promise, as estimated
};

// What a promise would have come to, of all the work that is told of, against the highest clock.
struct PromiseOutcome {
  double delta = 0;
  ShareEstimate saving, loss;
};

struct Recommendation {
  Duration covered{}, at_work{};       // of the time that was asked for
  std::vector<GovernedTime> governed;  // by policy
  // Of the work that ran at the GPU's own highest clock (or its power limit's), and of what a
  // policy held with an estimate of its performance, it is told what promises would have come to.
  Duration told{};
  Joules told_at_highest{};              // what that work took, or would have, at the highest clock
  std::vector<PromiseOutcome> outcomes;  // by delta upwards; empty: nothing can be told
  // Of `outcomes`, the one of least energy x time^2 for the same work; empty where even that one is
  // not 90 % sure to save anything.
  std::optional<std::size_t> best;
};

// `series`: those of one GPU, of steps so long. Errors: those of the GPU's envelope.
Result<Recommendation> recommend(std::span<const HistorySeriesView> series, double step_seconds,
                                 const Capability& capability, std::span<const double> deltas);

}  // namespace derate
