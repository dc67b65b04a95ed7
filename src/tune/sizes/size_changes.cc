#include "tune/sizes/size_changes.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

// How many standard errors the mean of the last runs is off. Every run is a test of several means,
// so that 3 would find a change in most jobs that have none: docs/tune-policies.md.
constexpr double kSurprise = 5;
// Runs: the fewest and the most that may be the new ones, the fewest that they are compared with.
constexpr std::size_t kFewestNew = 2, kMostNew = 8, kFewestOld = 3;
// In log: a change that is less is not worth a search.
constexpr double kLeastChange = 0.1;

// One quantity of one batch size, run by run.
class Series {
 public:
  std::size_t size() const { return trials_.size(); }
  std::size_t trial(std::size_t i) const { return trials_[i]; }
  double value(std::size_t i) const { return sums_[i + 1] - sums_[i]; }
  double mean(std::size_t begin, std::size_t end) const {
    return (sums_[end] - sums_[begin]) / static_cast<double>(end - begin);
  }
  void add(std::size_t trial, double value) {
    if (!trials_.empty()) {
      const double step = value - last_;
      half_squares_ += step * step / 2;
    }
    trials_.push_back(trial);
    sums_.push_back(sums_.back() + value);
    last_ = value;
  }
  // Steps from run to run tell the variance also across a change, and how many they are.
  double half_squares() const { return half_squares_; }
  double steps() const { return trials_.empty() ? 0 : static_cast<double>(trials_.size() - 1); }

 private:
  std::vector<std::size_t> trials_;
  std::vector<double> sums_{0};
  double last_ = 0, half_squares_ = 0;
};

// The same quantity of all batch sizes.
struct AllSeries {
  std::vector<Series> sizes;
  double sd, weight;  // before any were seen
  double half_squares = 0, steps = 0;

  void add(std::size_t size, std::size_t trial, double value) {
    const double before = sizes[size].half_squares();
    steps += sizes[size].size() > 0 ? 1 : 0;
    sizes[size].add(trial, value);
    half_squares += sizes[size].half_squares() - before;
  }
  // Of one batch size; one that varies by more than the others is believed to, once it was seen.
  double variance(std::size_t size) const {
    const double pooled = (weight * sd * sd + half_squares) / (weight + steps);
    const Series& own = sizes[size];
    return own.steps() < 3 ? pooled : std::max(pooled, own.half_squares() / own.steps());
  }
  void forget_before(std::size_t trial) {
    half_squares = steps = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Series all = std::exchange(sizes[i], {});
      for (std::size_t run = 0; run < all.size(); ++run)
        if (all.trial(run) >= trial) add(i, all.trial(run), all.value(run));
    }
  }
};

// The first trial of those that differ from all before.
std::optional<std::size_t> change_in(const Series& series, double variance) {
  std::optional<std::size_t> out;
  double most = kSurprise;
  const std::size_t n = series.size();
  for (std::size_t fresh = kFewestNew; fresh <= kMostNew && fresh + kFewestOld <= n; ++fresh) {
    const std::size_t old = n - fresh;
    const double change = std::abs(series.mean(old, n) - series.mean(0, old));
    const double error =
        std::sqrt(variance * (1 / static_cast<double>(fresh) + 1 / static_cast<double>(old)));
    if (change < kLeastChange || change <= most * error) continue;
    most = change / error;
    out = series.trial(old);
  }
  return out;
}

}  // namespace

std::optional<double> paid_for_an_epoch(const Trial& trial) {
  const bool reached = trial.state == TrialState::reached;
  if (!reached && trial.epochs < 1) return std::nullopt;
  const double paid = trial.cost - trial.profiling_cost;
  return paid > 0 ? std::optional(paid / std::max(trial.epochs, kFewestEpochs)) : std::nullopt;
}

std::optional<double> log_epochs_of(const Trial& trial) {
  if (trial.state == TrialState::reached) return std::log(std::max(trial.epochs, kFewestEpochs));
  const bool ended = trial.state == TrialState::missed || trial.state == TrialState::stopped;
  if (!ended || trial.epochs < 1) return std::nullopt;
  return std::log(trial.epochs) + kCensoredStep;
}

std::optional<std::size_t> place_of(const SizeProblem& problem, int batch_size) {
  const auto& sizes = problem.batch_sizes;
  const auto at = std::lower_bound(sizes.begin(), sizes.end(), batch_size);
  if (at == sizes.end() || *at != batch_size) return std::nullopt;
  return static_cast<std::size_t>(at - sizes.begin());
}

std::vector<SizeChange> find_changes(const SizeProblem& problem, std::span<const Trial> trials) {
  const std::vector<Series> none(problem.batch_sizes.size());
  AllSeries epochs{none, kRunSd, kRunWeight}, costs{none, kPaidSd, kPaidWeight};
  std::vector<SizeChange> out;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const auto at = place_of(problem, trials[i].batch_size);
    if (!at || trials[i].state == TrialState::running) continue;
    std::optional<std::size_t> in_epochs, in_cost;
    if (const auto value = log_epochs_of(trials[i])) {
      epochs.add(*at, i, *value);
      const double whole = kWholeEpochs * std::exp(-2 * *value);
      in_epochs = change_in(epochs.sizes[*at], epochs.variance(*at) + whole);
    }
    if (const auto paid = paid_for_an_epoch(trials[i])) {
      costs.add(*at, i, std::log(*paid));
      in_cost = change_in(costs.sizes[*at], costs.variance(*at));
    }
    if (!in_epochs && !in_cost) continue;
    const std::size_t first = std::min(in_epochs.value_or(i), in_cost.value_or(i));
    out.push_back({first, in_epochs.has_value(), in_cost.has_value()});
    if (in_epochs) epochs.forget_before(first);
    if (in_cost) costs.forget_before(first);
  }
  return out;
}

}  // namespace derate
