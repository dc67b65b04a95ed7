#include "tune/sizes/size_beliefs.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "tune/sizes/size_changes.h"

namespace derate {
namespace {

// Chosen together with those of tune_sizes.cc, on targets that are not reported:
// docs/tune-policies.md.
constexpr SizeCurve::Prior kEpochs{.slope = 0.12, .slope_sd = 0.3, .wander = 0.15};
constexpr SizeCurve::Prior kEpochCost{.slope = -0.1, .slope_sd = 0.5, .bend = 0.3};

constexpr double kLevelSd = 10;  // nothing is known of absolute values
// A profile tells what is then paid as well as that before any were seen; counted as so many.
constexpr double kProfileSd = 0.01, kProfileWeight = 1;
constexpr double kCensoredSd = 0.3;

bool is_cost(const std::optional<double>& cost) { return cost.value_or(0) > 0; }

void take_cost(SeenCost& seen, const Trial& trial) {
  if (is_cost(trial.epoch_cost)) seen.profile = std::log(*trial.epoch_cost);
  if (const auto paid = paid_for_an_epoch(trial)) seen.paid.add(std::log(*paid));
}

void take_run(SeenEpochs& seen, const Trial& trial) {
  switch (trial.state) {
    case TrialState::running:
    case TrialState::infeasible:
    case TrialState::lost:
      return;
    case TrialState::reached: {
      const double epochs = std::max(trial.epochs, kFewestEpochs);
      seen.reached.add(std::log(epochs));
      seen.epochs += epochs, seen.reached_epochs += epochs;
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
  for (auto each = first; each != seen.end(); ++each) each->infeasible |= !each->fits;
}

// `last`: of all there are.
void see(SizeBeliefs& beliefs, const SizeProblem& problem, std::span<const Trial> trials,
         const Trial& last) {
  const bool unfinished = last.state != TrialState::reached;
  for (const Trial& trial : trials) {
    beliefs.paid += trial.cost;
    // Whoever asks may have taken a batch size from the list.
    const auto at = place_of(problem, trial.batch_size);
    if (!at) continue;
    SeenSize& seen = beliefs.seen[*at];
    take_cost(seen.cost, trial);
    take_run(seen.runs, trial);
    seen.running |= trial.state == TrialState::running;
    seen.fits |= trial.state == TrialState::reached;
    seen.infeasible |= trial.state == TrialState::infeasible;
    seen.stopped_now |= unfinished && trial.recurrence == last.recurrence;
    beliefs.completed += trial.state == TrialState::reached ? 1 : 0;
    if (trial.batch_size != problem.default_size) continue;
    if (is_cost(trial.default_epoch_cost))
      beliefs.by_default = trial.default_epoch_cost;
    else if (!beliefs.by_default && trial.state == TrialState::reached)
      beliefs.by_default = paid_for_an_epoch(trial);
  }
}

void estimate_scatter(SizeBeliefs& beliefs) {
  double weight = kRunWeight, squares = kRunWeight * kRunSd * kRunSd;
  double paid_weight = kPaidWeight, paid = kPaidWeight * kPaidSd * kPaidSd;
  double profile_weight = kProfileWeight, profile = kProfileWeight * kProfileSd * kProfileSd;
  for (const SeenSize& seen : beliefs.seen) {
    const auto& [runs, cost] = std::tie(seen.runs, seen.cost);
    if (runs.reached.count > 1)
      squares += runs.reached.squares_about_mean(), weight += runs.reached.count - 1;
    if (cost.paid.count > 1)
      paid += cost.paid.squares_about_mean(), paid_weight += cost.paid.count - 1;
    if (cost.paid.count == 0 || !cost.profile) continue;
    const double error = *cost.profile - cost.paid.mean();
    profile += error * error, profile_weight += 1;
  }
  beliefs.run_variance = squares / weight;
  beliefs.paid_variance = paid / paid_weight;
  beliefs.profile_variance = profile / profile_weight;
}

void observe_costs(SizeBeliefs& beliefs) {
  for (std::size_t i = 0; i < beliefs.seen.size(); ++i) {
    const auto& [profile, paid] = beliefs.seen[i].cost;
    if (profile) beliefs.cost.observe(i, *profile, beliefs.profile_variance);
    if (paid.count > 0) beliefs.cost.observe(i, paid.mean(), beliefs.paid_variance / paid.count);
  }
}

void observe_epochs(SizeBeliefs& beliefs) {
  for (std::size_t i = 0; i < beliefs.seen.size(); ++i) {
    const SeenEpochs& seen = beliefs.seen[i].runs;
    if (seen.reached.count == 0) continue;
    const double value = std::log(seen.reached_epochs / seen.reached.count);
    beliefs.epochs.observe(i, value, beliefs.noise(value) / seen.reached.count);
  }
  for (std::size_t i = 0; i < beliefs.seen.size(); ++i) {
    const SeenEpochs& seen = beliefs.seen[i].runs;
    if (seen.reached.count > 0 || seen.longest < 1) continue;
    const double least = std::log(seen.longest) + kCensoredStep;
    if (beliefs.epochs.mean(i) < least) beliefs.epochs.observe(i, least, kCensoredSd * kCensoredSd);
  }
}

// What was seen until now was of the job as it was before.
void change(SizeBeliefs& beliefs, const SizeChange& what) {
  estimate_scatter(beliefs);
  if (what.epochs) {
    observe_epochs(beliefs);
    beliefs.epochs.reopen();
    for (SeenSize& seen : beliefs.seen) seen.runs = {};
  }
  if (what.cost) {
    observe_costs(beliefs);
    beliefs.cost.reopen();
    for (SeenSize& seen : beliefs.seen) seen.cost = {};
    beliefs.by_default.reset();
  }
  beliefs.before += std::exchange(beliefs.completed, 0);
  beliefs.paid = 0;
}

void find_best(SizeBeliefs& beliefs) {
  for (std::size_t i = 0; i < beliefs.seen.size(); ++i)
    if (beliefs.seen[i].runs.reached.count > 0 && beliefs.seen[i].cost.known() &&
        !beliefs.seen[i].infeasible &&
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
  prior_ = covariance_;
}

void SizeCurve::reopen() {
  for (std::size_t i = 0; i < prior_.size(); ++i) covariance_[i] += prior_[i];
}

double Scatter::squares_about_mean() const {
  return count == 0 ? 0 : std::max(0.0, squares - sum * sum / count);
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

SizeBeliefs believe(const SizeProblem& problem, std::span<const Trial> trials) {
  std::vector<double> x;
  for (const int size : problem.batch_sizes)
    x.push_back(std::log2(static_cast<double>(size) / problem.default_size));
  SizeBeliefs out{std::vector<SeenSize>(x.size()), SizeCurve(x, kEpochs), SizeCurve(x, kEpochCost)};
  std::size_t begin = 0;
  for (const SizeChange& each : find_changes(problem, trials)) {
    const std::size_t first = std::max(begin, each.first);
    see(out, problem, trials.subspan(begin, first - begin), trials.back());
    change(out, each);
    if (each.epochs) out.epochs_since = first;
    begin = first;
  }
  if (!trials.empty()) see(out, problem, trials.subspan(begin), trials.back());
  rule_out_larger(out.seen);
  estimate_scatter(out);
  observe_costs(out);
  observe_epochs(out);
  find_best(out);
  finish_default(out, problem);
  return out;
}

}  // namespace derate
