// Posterior estimates of a recurring job's batch sizes: how many epochs each takes to the target,
// and the cost of an epoch.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tune/sizes/trial.h"

namespace derate {

// Gaussian, one value a batch size; the posterior of a reading is exact.
class SizeCurve {
 public:
  // Of the logarithm of something at `x` octaves from the default: of a level that is not known,
  // falling or rising by `slope` an octave on average.
  // wander: sd over an octave of a Wiener process on the value; bend: of one on the slope.
  struct Prior {
    double slope = 0, slope_sd = 0, wander = 0, bend = 0;
  };
  SizeCurve(std::span<const double> x, const Prior& prior);

  double mean(std::size_t i) const { return mean_[i]; }
  double covariance(std::size_t i, std::size_t j) const { return covariance_[i * size_ + j]; }
  // Of the difference between the two.
  double variance_between(std::size_t i, std::size_t j) const;
  void observe(std::size_t at, double value, double variance);
  // It has changed, by as much as it is not known at the beginning: what it was is expected, and no
  // more than that.
  void reopen();

 private:
  std::size_t size_;
  std::vector<double> mean_, covariance_, prior_;
};

// Of values that are all of the same thing.
struct Scatter {
  int count = 0;
  double sum = 0, squares = 0;

  void add(double value) { ++count, sum += value, squares += value * value; }
  double mean() const { return sum / count; }
  double squares_about_mean() const;  // their sum
};

// What runs of one batch size took to the target, since that has changed.
struct SeenEpochs {
  Scatter reached;            // log epochs of runs that reached the target
  double reached_epochs = 0;  // of those
  double epochs = 0;          // of all runs
  double longest = 0;         // epochs of a run that did not reach it
  int missed = 0, stops = 0;  // `stops`: all that did not reach it
  int last_stop = 0;          // its recurrence

  // What runs that did not get there add to one that does, in log.
  double of_stops() const { return reached.count > 0 ? std::log(epochs / reached_epochs) : 0; }
};

// What an epoch of one batch size costs, since that has changed: as logarithms of J.
struct SeenCost {
  std::optional<double> profile;
  Scatter paid;  // by runs

  bool known() const { return profile || paid.count > 0; }
};

struct SeenSize {
  SeenEpochs runs;
  SeenCost cost;
  bool running = false, infeasible = false;
  bool fits = false;         // a run of it has reached its target once
  bool stopped_now = false;  // in the recurrence that is still to reach its target
};

struct SizeBeliefs {
  std::vector<SeenSize> seen;  // as problem.batch_sizes
  SizeCurve epochs, cost;      // logarithms: to the target; J of an epoch
  // Of logarithms, pooled over the batch sizes: of epochs and of what an epoch is paid, between
  // runs of one; of a profile against what is paid.
  double run_variance = 0, paid_variance = 0, profile_variance = 0;
  std::optional<std::size_t> best;   // the cheapest of those that have reached the target
  int completed = 0;                 // recurrences that have reached their target
  int before = 0;                    // ... before the last change, which `completed` leaves out
  std::size_t epochs_since = 0;      // the first trial since epochs to the target have changed
  double paid = 0;                   // J, by all tries since the last change
  std::optional<double> by_default;  // J: a run at the default batch size and the highest setting
  double by_default_sd = 0;          // relative

  // Of a run to the target, J.
  double log_cost(std::size_t i) const {
    return epochs.mean(i) + seen[i].runs.of_stops() + cost.mean(i);
  }
  // Of log epochs between runs: the pooled variance, and that epochs are whole.
  double noise(double log_epochs) const;
};

SizeBeliefs believe(const SizeProblem& problem, std::span<const Trial> trials);

}  // namespace derate
