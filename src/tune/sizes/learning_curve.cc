#include "tune/sizes/learning_curve.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tune/sizes/size_changes.h"

namespace derate {
namespace {

// The rest of a run is as much slower or faster than its beginning was, within this sd in log.
// Assumed: there are no published curves of one job at several batch sizes. Where the exponents of
// power laws differ by up to a fifth, twice what is told covers 98 %.
constexpr double kShapeSd = 0.25;

bool is_as_good(const SizeProblem& problem, double metric, double as) {
  return problem.lower_is_better ? metric <= as : metric >= as;
}

// Epochs after which the run first had `metric`, between two of its marks in proportion; with the
// first of them where it was better from then on. Empty where it never had it.
std::optional<double> epochs_at(const SizeProblem& problem, const Trial& run, double metric) {
  const auto after = std::find_if(run.marks.begin(), run.marks.end(), [&](const EpochMark& mark) {
    return is_as_good(problem, mark.metric, metric);
  });
  if (after == run.marks.end()) return std::nullopt;
  if (after == run.marks.begin()) return after->epochs;
  const EpochMark& before = *(after - 1);
  const double part = (metric - before.metric) / (after->metric - before.metric);
  return before.epochs + part * (after->epochs - before.epochs);
}

}  // namespace

std::optional<EpochsReading> foretell_epochs(const SizeProblem& problem,
                                             std::span<const Trial> trials, std::size_t first,
                                             std::size_t running) {
  const Trial& now = trials[running];
  if (now.marks.empty() || now.epochs < 1) return std::nullopt;
  double sum = 0, squares = 0, variance = 0, count = 0;
  for (std::size_t i = trials.size(); i-- > first && count < kMostCurves;) {
    const Trial& run = trials[i];
    if (i == running || run.state != TrialState::reached) continue;
    const auto whole = epochs_at(problem, run, problem.target);
    const auto same = epochs_at(problem, run, now.marks.back().metric);
    if (!whole || !same || *same <= 0 || *whole < *same) continue;
    const double part = *same / *whole, left = (1 - part) * kShapeSd;
    const double value = std::log(now.epochs / part);
    sum += value, squares += value * value, count += 1;
    variance += left * left + kWholeEpochs * (1 / (*same * *same) + 1 / (now.epochs * now.epochs));
  }
  if (count == 0) return std::nullopt;
  const double mean = sum / count;
  // They may all err alike: many are no better than one, and worse where they differ.
  return EpochsReading{mean, (variance + std::max(0.0, squares - sum * mean)) / count};
}

}  // namespace derate
