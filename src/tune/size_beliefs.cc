#include "tune/size_beliefs.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Chosen together with those of tune_sizes.cc, on targets that are not reported:
// docs/tune-policies.md.
constexpr SizeCurve::Prior kEpochs{.slope = 0.12, .slope_sd = 0.3, .wander = 0.15};
constexpr SizeCurve::Prior kEpochCost{.slope = -0.1, .slope_sd = 0.5, .bend = 0.3};
constexpr double kRunSd = 0.065;  // of log epochs between runs, before any were seen
constexpr double kRunWeight = 6;  // runs that it counts as

constexpr double kLevelSd = 10;        // nothing is known of absolute values
constexpr double kEpochCostSd = 0.01;  // of what a profile tells
// The true count lies within half an epoch of the one seen; some jobs always take the same.
constexpr double kWholeEpochs = 0.125;
// A run that was stopped would have taken that much longer, in log.
constexpr double kCensoredStep = 0.25, kCensoredSd = 0.3;

// Of a run that was at its target before its first epoch was over.
constexpr double kFewestEpochs = 0.5;

bool is_cost(const std::optional<double>& cost) { return cost.value_or(0) > 0; }

// J, where there is no profile, as of a run that was over before its limit was measured: what its
// epochs were paid. Empty where they cost nothing, and for a run that did not reach the target.
std::optional<double> paid_for_an_epoch(const Trial& trial) {
  if (trial.state != TrialState::reached) return std::nullopt;
  const double paid = trial.cost - trial.profiling_cost;
  return paid > 0 ? std::optional(paid / std::max(trial.epochs, kFewestEpochs)) : std::nullopt;
}

void take(SeenSize& seen, const Trial& trial) {
  if (is_cost(trial.epoch_cost))
    seen.epoch_cost = trial.epoch_cost;
  else if (!seen.epoch_cost)
    seen.epoch_cost = paid_for_an_epoch(trial);
  switch (trial.state) {
    case TrialState::running:
      seen.running = true;
      return;
    case TrialState::infeasible:
      seen.infeasible = true;
      return;
    case TrialState::lost:
      return;
    case TrialState::reached: {
      const double epochs = std::max(trial.epochs, kFewestEpochs), value = std::log(epochs);
      ++seen.reached, seen.log_sum += value, seen.log_squares += value * value;
      seen.epochs += epochs;
      return;
    }
    case TrialState::missed:
      ++seen.missed;
      [[fallthrough]];
    case TrialState::stopped:
      seen.longest = std::max(seen.longest, trial.epochs);
      ++seen.stops, seen.last_stop = trial.recurrence;
  }
  seen.epochs += trial.epochs;
}

// Batch sizes above one that ran out of memory do so, too.
void rule_out_larger(std::vector<SeenSize>& seen) {
  const auto first =
      std::find_if(seen.begin(), seen.end(), [](const SeenSize& each) { return each.infeasible; });
  for (auto each = first; each != seen.end(); ++each) each->infeasible |= each->reached == 0;
}

// In one pass: there may be thousands of trials, and a decision waits for it.
void see(SizeBeliefs& beliefs, const SizeProblem& problem, std::span<const Trial> trials) {
  const bool unfinished = !trials.empty() && trials.back().state != TrialState::reached;
  for (const Trial& trial : trials) {
    beliefs.paid += trial.cost;
    // Whoever asks may have taken a batch size from the list.
    const auto at = place_of(problem, trial.batch_size);
    if (!at) continue;
    SeenSize& seen = beliefs.seen[*at];
    take(seen, trial);
    seen.stopped_now |= unfinished && trial.recurrence == trials.back().recurrence;
    beliefs.completed += trial.state == TrialState::reached ? 1 : 0;
    if (trial.batch_size != problem.default_size) continue;
    if (is_cost(trial.default_epoch_cost))
      beliefs.by_default = trial.default_epoch_cost;
    else if (!beliefs.by_default)
      beliefs.by_default = paid_for_an_epoch(trial);
  }
  rule_out_larger(beliefs.seen);
}

double pooled_variance(std::span<const SeenSize> sizes) {
  double weight = kRunWeight, squares = kRunWeight * kRunSd * kRunSd;
  for (const SeenSize& seen : sizes) {
    if (seen.reached < 2) continue;
    squares += std::max(0.0, seen.log_squares - seen.log_sum * seen.log_sum / seen.reached);
    weight += seen.reached - 1;
  }
  return squares / weight;
}

void observe_sizes(SizeBeliefs& beliefs) {
  for (std::size_t i = 0; i < beliefs.seen.size(); ++i) {
    const SeenSize& seen = beliefs.seen[i];
    if (seen.epoch_cost)
      beliefs.cost.observe(i, std::log(*seen.epoch_cost), kEpochCostSd * kEpochCostSd);
    if (seen.reached == 0) continue;
    // Epochs until the target is reached: those of runs that did not reach it count.
    const double value = std::log(seen.epochs / seen.reached);
    beliefs.epochs.observe(i, value, beliefs.noise(value) / seen.reached);
  }
  for (std::size_t i = 0; i < beliefs.seen.size(); ++i) {
    const SeenSize& seen = beliefs.seen[i];
    if (seen.reached > 0 || seen.longest < 1) continue;
    const double least = std::log(seen.longest) + kCensoredStep;
    if (beliefs.epochs.mean(i) < least) beliefs.epochs.observe(i, least, kCensoredSd * kCensoredSd);
  }
}

void find_best(SizeBeliefs& beliefs) {
  for (std::size_t i = 0; i < beliefs.seen.size(); ++i)
    if (beliefs.seen[i].reached > 0 && beliefs.seen[i].epoch_cost && !beliefs.seen[i].infeasible &&
        (!beliefs.best || beliefs.log_cost(i) < beliefs.log_cost(*beliefs.best)))
      beliefs.best = i;
}

// From what an epoch costs by default to what a run does.
void finish_default(SizeBeliefs& beliefs, const SizeProblem& problem) {
  const auto at = place_of(problem, problem.default_size);
  if (!beliefs.by_default || !at) return beliefs.by_default.reset();
  *beliefs.by_default *= std::exp(beliefs.epochs.mean(*at));
  beliefs.by_default_sd = std::sqrt(beliefs.epochs.covariance(*at, *at));
}

bool same_side(double a, double b) { return (a > 0) == (b > 0); }

}  // namespace

SizeCurve::SizeCurve(std::span<const double> x, const Prior& prior) : size_(x.size()) {
  for (const double a : x) {
    mean_.push_back(prior.slope * a);
    for (const double b : x) {
      const double near = same_side(a, b) ? std::min(std::abs(a), std::abs(b)) : 0;
      const double far = std::max(std::abs(a), std::abs(b));
      // Covariances of a Wiener process and of an integrated one, to both sides of the default.
      const double wander = near, bend = near * near * (3 * far - near) / 6;
      covariance_.push_back(kLevelSd * kLevelSd + prior.slope_sd * prior.slope_sd * a * b +
                            prior.wander * prior.wander * wander + prior.bend * prior.bend * bend);
    }
  }
}

double SizeCurve::variance_between(std::size_t i, std::size_t j) const {
  return std::max(0.0, covariance(i, i) + covariance(j, j) - 2 * covariance(i, j));
}

void SizeCurve::observe(std::size_t at, double value, double variance) {
  const double total = covariance(at, at) + variance;
  const double surprise = value - mean_[at];
  const auto begin = covariance_.begin() + static_cast<std::ptrdiff_t>(at * size_);
  const std::vector<double> row(begin, begin + static_cast<std::ptrdiff_t>(size_));
  for (std::size_t i = 0; i < size_; ++i) {
    const double gain = row[i] / total;
    mean_[i] += gain * surprise;
    for (std::size_t j = 0; j < size_; ++j) covariance_[i * size_ + j] -= gain * row[j];
  }
}

double SizeBeliefs::noise(double log_epochs) const {
  return run_variance + kWholeEpochs * std::exp(-2 * log_epochs);
}

std::optional<std::size_t> place_of(const SizeProblem& problem, int batch_size) {
  const auto& sizes = problem.batch_sizes;
  const auto at = std::lower_bound(sizes.begin(), sizes.end(), batch_size);
  if (at == sizes.end() || *at != batch_size) return std::nullopt;
  return static_cast<std::size_t>(at - sizes.begin());
}

SizeBeliefs believe(const SizeProblem& problem, std::span<const Trial> trials) {
  std::vector<double> x;
  for (const int size : problem.batch_sizes)
    x.push_back(std::log2(static_cast<double>(size) / problem.default_size));
  SizeBeliefs out{std::vector<SeenSize>(x.size()), SizeCurve(x, kEpochs), SizeCurve(x, kEpochCost)};
  see(out, problem, trials);
  out.run_variance = pooled_variance(out.seen);
  observe_sizes(out);
  find_best(out);
  finish_default(out, problem);
  return out;
}

}  // namespace derate
