#include "tune/sizes/tune_sizes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "tune/sizes/learning_curve.h"
#include "tune/sizes/size_beliefs.h"
#include "tune/sizes/size_changes.h"

namespace derate {
namespace {

// Chosen together with those of size_beliefs.cc, on targets that are not reported:
// docs/tune-policies.md.
constexpr double kHorizon = 10;     // runs that are counted on, besides as many as there were
constexpr double kLongest = 100;    // and no more than that: jobs change
constexpr double kReach = 1.5;      // octaves beyond what was profiled, at the beginning
constexpr double kMostPeek = 1;     // runs of the best that looking further than that may take
constexpr double kOverdraft = 1.2;  // what a run must be worth, in what it may lose to the default

constexpr double kPeek = 0.5;  // epochs that a profile takes
constexpr int kPatience = 10;  // runs, doubled each time, before what was given up is tried again

// Of a run that costs exp(N(mean, variance)) times the best one.
struct Prospect {
  double mean = 0, variance = 0;

  double below(double log_bound) const {
    return 0.5 * std::erfc(-(log_bound - mean) / std::sqrt(2 * variance));
  }
  // E[cost; cost < exp(log_bound)]
  double partial(double log_bound) const {
    return std::exp(mean + variance / 2) * Prospect{mean + variance, variance}.below(log_bound);
  }
};

// E[(1 - cost)+] where the run costs more than exp(log_least): what one such run would save on
// average of all later ones, in costs of the best.
double expected_improvement(const Prospect& prospect, double log_least) {
  if (log_least >= 0) return 0;
  return prospect.below(0) - prospect.below(log_least) -
         (prospect.partial(0) - prospect.partial(log_least));
}

// E[cost] where the run costs more than exp(log_least); one that would cost more than beta is
// stopped there, and the best runs after it.
double expected_cost(const Prospect& prospect, double log_least, double beta) {
  const double bound = std::max(std::log(beta), log_least);
  return prospect.partial(bound) - prospect.partial(log_least) +
         (beta + 1) * (1 - prospect.below(bound));
}

constexpr double kLogNothing = -20;

// Nodes and weights of Gauss-Hermite quadrature, for a standard normal (Abramowitz and Stegun,
// table 25.10).
constexpr std::array<std::array<double, 2>, 5> kNormalNodes{{{-2.8569700139, 0.0112574113},
                                                             {-1.3556261800, 0.2220759220},
                                                             {0, 0.5333333333},
                                                             {1.3556261800, 0.2220759220},
                                                             {2.8569700139, 0.0112574113}}};

// Runs that are counted on: as many as there were since the job has changed, and some.
double runs_ahead(const SizeProblem& problem, const SizeBeliefs& beliefs) {
  return problem.recurrences
             ? std::max(0, *problem.recurrences - beliefs.before - beliefs.completed - 1)
             : std::min(kLongest, kHorizon + beliefs.completed);
}

// What trying a batch size is worth. All costs are in those of a run of the best.
class Appraisal {
 public:
  Appraisal(const SizeProblem& problem, const SizeBeliefs& beliefs)
      : problem_(problem),
        beliefs_(beliefs),
        best_(*beliefs.best),
        unit_(std::exp(beliefs.log_cost(*beliefs.best))),
        horizon_(runs_ahead(problem, beliefs)) {}

  // J: a run of the best.
  double unit() const { return unit_; }

  // What later runs save on average if `i` runs to its end, less what that takes above a run of the
  // best instead. `shift`: were its epoch's cost so far from what is believed, in log. `spent` is
  // paid already, and at least one more epoch will be (half of it: whole epochs, taken as
  // continuous). `cost_variance`: of what is believed of its epoch's cost.
  double worth_of_a_run(std::size_t i, double shift, double spent, double cost_variance) const {
    const double epoch = std::exp(beliefs_.cost.mean(i) + shift) / unit_;
    const double log_least = std::log(spent + 0.5 * epoch);
    const double mean = relative(i) + shift;
    const Prospect run{mean, variance_of_epochs(i) + cost_variance};
    const double left = 1 - run.below(log_least);
    if (left < 1e-6) return -problem_.beta;  // it takes longer than was believed of it
    const double to_come = expected_cost(run, log_least, problem_.beta) / left - spent;
    const double improvement =
        expected_improvement({mean, what_a_run_teaches(i) + cost_variance}, log_least) / left;
    return horizon_ * improvement + 1 - to_come;
  }

  // Of a try of `i`. A batch size that was never profiled is looked at first, and given up where
  // that shows it to be expensive.
  double worth(std::size_t i) const {
    if (beliefs_.seen[i].cost.known()) return worth_of_a_run(i, 0, 0, cost_variance(i));
    // A profile takes so much of what is not known of the cost, and leaves the rest.
    const double variance = beliefs_.cost.covariance(i, i);
    const double told = variance / (variance + beliefs_.profile_variance);
    const double sd = std::sqrt(variance * told), left = variance * (1 - told);
    double worth = 0;
    for (const auto& [z, weight] : kNormalNodes) {
      const double shift = z * sd;
      const double peek = kPeek * std::exp(beliefs_.cost.mean(i) + shift) / unit_;
      worth += weight * std::max(-peek, worth_of_a_run(i, shift, 0, left));
    }
    return worth;
  }

  // What looking at `i` takes, unless an epoch of it costs far more than is believed.
  double dear_peek(std::size_t i) const {
    const double sd = std::sqrt(beliefs_.cost.covariance(i, i));
    return kPeek * std::exp(beliefs_.cost.mean(i) + 2 * sd) / unit_;
  }

  // What a run of `i` takes, unless it takes far longer than is believed.
  double likely_cost(std::size_t i) const {
    const Prospect run = prospect(i);
    return std::exp(run.mean + 1.5 * std::sqrt(run.variance));
  }

  // What a try of `i` is expected to take above the default, less what has been saved so far.
  double overdraft(std::size_t i) const {
    if (!beliefs_.by_default) return 0;
    const Prospect run = prospect(i);
    const double allowed = *beliefs_.by_default * (beliefs_.completed + 1) - beliefs_.paid;
    return std::max(0.0, expected_cost(run, kLogNothing, problem_.beta) - allowed / unit_);
  }

  // What is not known of the cost of its epoch against the best's.
  double cost_variance(std::size_t i) const { return beliefs_.cost.variance_between(i, best_); }

 private:
  Prospect prospect(std::size_t i) const {
    return {relative(i), variance_of_epochs(i) + cost_variance(i)};
  }
  double relative(std::size_t i) const { return beliefs_.log_cost(i) - beliefs_.log_cost(best_); }
  double variance_of_epochs(std::size_t i) const {
    return beliefs_.epochs.variance_between(i, best_) + beliefs_.noise(beliefs_.epochs.mean(i));
  }
  // The variance of the change that a run of `i` makes to what is believed of it against the best
  // (the knowledge gradient of Frazier, Powell and Dayanik, 2009): little where much is known.
  double what_a_run_teaches(std::size_t i) const {
    const SizeCurve& epochs = beliefs_.epochs;
    const double change = epochs.covariance(i, i) - epochs.covariance(i, best_);
    const double total = epochs.covariance(i, i) + beliefs_.noise(epochs.mean(i));
    return std::max(1e-8, change * change / total);
  }

  const SizeProblem& problem_;
  const SizeBeliefs& beliefs_;
  std::size_t best_;
  double unit_, horizon_;
};

// Before any run has reached its target: the default, then what failed least often, the nearest
// first.
std::size_t first_to_reach(const SizeProblem& problem, const SizeBeliefs& beliefs) {
  const auto rank = [&](std::size_t i) {
    const double ratio = static_cast<double>(problem.batch_sizes[i]) / problem.default_size;
    return std::tuple(beliefs.seen[i].infeasible, beliefs.seen[i].runs.stops,
                      std::abs(std::log2(ratio)));
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < problem.batch_sizes.size(); ++i)
    if (rank(i) < rank(best)) best = i;
  return best;
}

// It has missed its target or was given up twice, and never got there since the job has changed.
bool is_hopeless(const SeenEpochs& runs) { return runs.reached.count == 0 && runs.stops > 1; }

// Octaves from the nearest batch size whose epoch's cost is known; a place next to one is near.
double octaves_to_known(const SizeProblem& problem, const SizeBeliefs& beliefs, std::size_t i) {
  double out = INFINITY;
  for (std::size_t j = 0; j < problem.batch_sizes.size(); ++j) {
    if (!beliefs.seen[j].cost.known()) continue;
    const double ratio = static_cast<double>(problem.batch_sizes[i]) / problem.batch_sizes[j];
    const double octaves = std::abs(std::log2(ratio));
    out = std::min(out, i + 1 == j || j + 1 == i ? std::min(octaves, kReach) : octaves);
  }
  return out;
}

// Costs of what is far are a guess: it is looked at when there are runs enough ahead to pay for it,
// and where even a dear epoch would cost little.
bool is_in_reach(const SizeProblem& problem, const SizeBeliefs& beliefs, const Appraisal& appraisal,
                 std::size_t i) {
  const double octaves = octaves_to_known(problem, beliefs, i);
  if (octaves <= kReach) return true;
  const double reach = kReach * std::log2(1 + runs_ahead(problem, beliefs) / kHorizon);
  return octaves <= reach && appraisal.dear_peek(i) <= kMostPeek;
}

// Near enough to a batch size that was profiled, and not known to be hopeless.
bool may_be_tried(const SizeProblem& problem, const SizeBeliefs& beliefs,
                  const Appraisal& appraisal, std::size_t i) {
  const SeenSize& seen = beliefs.seen[i];
  if (i == *beliefs.best || seen.infeasible || seen.running || seen.stopped_now ||
      is_hopeless(seen.runs))
    return false;
  // What was given up is not begun again soon: little has been learned since.
  const int patience = kPatience << std::clamp(seen.runs.stops - 1, 0, 10);
  const int since = beliefs.before + beliefs.completed - seen.runs.last_stop;
  if (seen.runs.stops > 0 && since <= patience) return false;
  return is_in_reach(problem, beliefs, appraisal, i);
}

// J that a try may cost so that the budget is kept even if it comes to nothing and the best runs
// after it; empty: no budget. The budget counts from kFreeRuns runs on: until then the runs that
// are left to that many are counted in.
std::optional<double> allowance(const SizeProblem& problem, const SizeBeliefs& beliefs) {
  if (!problem.budget) return std::nullopt;
  const double best = std::exp(beliefs.log_cost(*beliefs.best));
  const int free = beliefs.before > 0 ? 0 : SizeProblem::kFreeRuns;
  const int runs = std::max(free, beliefs.completed + 1);
  const double by_default = beliefs.by_default.value_or(0) * (1 - 2 * beliefs.by_default_sd);
  return (1 + *problem.budget) * by_default * runs - beliefs.paid -
         best * (runs - beliefs.completed);
}

}  // namespace

SizeChoice tune_choose(const SizeProblem& problem, std::span<const Trial> trials) {
  const SizeBeliefs beliefs = believe(problem, trials);
  SizeChoice out{.batch_size = problem.default_size};
  if (!beliefs.best) {
    out.batch_size = problem.batch_sizes[first_to_reach(problem, beliefs)];
    out.why = {"no run has reached the target yet"};
    return out;
  }
  const Appraisal appraisal(problem, beliefs);
  const double bound = problem.beta * appraisal.unit();
  out.batch_size = problem.batch_sizes[*beliefs.best];
  out.stop_cost = bound;
  out.why = {"the cheapest known"};
  const auto allowed = allowance(problem, beliefs);
  double most = 0;
  for (std::size_t i = 0; i < problem.batch_sizes.size(); ++i) {
    if (!may_be_tried(problem, beliefs, appraisal, i)) continue;
    // What would be stopped for the budget on its way teaches nothing.
    if (allowed && *allowed < std::min(bound, appraisal.likely_cost(i) * appraisal.unit()))
      continue;
    const double worth = appraisal.worth(i);
    if (worth <= most || worth < kOverdraft * appraisal.overdraft(i)) continue;
    most = worth;
    out.batch_size = problem.batch_sizes[i];
    out.exploring = true;
    out.stop_cost = allowed ? std::min(bound, *allowed) : bound;
    out.why = {"worth {0:.2f} runs of the best to know", {worth}};
  }
  return out;
}

SizeVerdict tune_watch(const SizeProblem& problem, std::span<const Trial> trials,
                       std::size_t running, const SizeChoice& choice) {
  const Trial& trial = trials[running];
  if (!choice.stop_cost || !trial.epoch_cost) return {};
  if (trial.cost + *trial.epoch_cost > *choice.stop_cost)
    return {true, {"would cost more than {0:.3g} J", {*choice.stop_cost}}};
  if (!trial.exploring) return {};
  SizeBeliefs beliefs = believe(problem, trials);
  if (!beliefs.best) return {};
  const auto at = place_of(problem, trial.batch_size);
  if (!at) return {};
  if (const auto told = foretell_epochs(problem, trials, beliefs.epochs_since, running))
    beliefs.epochs.observe(*at, told->log_epochs, told->variance + beliefs.run_variance);
  const Appraisal appraisal(problem, beliefs);
  const double worth =
      appraisal.worth_of_a_run(*at, 0, trial.cost / appraisal.unit(), appraisal.cost_variance(*at));
  if (worth >= 0) return {};
  return {true, {"going on would lose {0:.2f} runs of the best", {-worth}}};
}

}  // namespace derate
