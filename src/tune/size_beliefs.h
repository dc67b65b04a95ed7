// What is believed of a recurring job's batch sizes: how many epochs each takes to the target, and
// what an epoch costs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tune/trial.h"

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

 private:
  std::size_t size_;
  std::vector<double> mean_, covariance_;
};

// What was seen of one batch size.
struct SeenSize {
  int reached = 0;
  double log_sum = 0, log_squares = 0;  // of the epochs of runs that reached the target
  double epochs = 0;                    // of all runs
  double longest = 0;                   // epochs of a run that did not reach it
  int missed = 0, stops = 0;            // `stops`: all that did not reach it
  int last_stop = 0;                    // its recurrence
  bool running = false, infeasible = false;
  bool stopped_now = false;  // in the recurrence that is still to reach its target
  std::optional<double> epoch_cost;
};

struct SizeBeliefs {
  std::vector<SeenSize> seen;        // as problem.batch_sizes
  SizeCurve epochs, cost;            // logarithms: to the target; J of an epoch
  double run_variance = 0;           // of log epochs between runs of one batch size, pooled
  std::optional<std::size_t> best;   // the cheapest of those that have reached the target
  int completed = 0;                 // recurrences that have reached their target
  double paid = 0;                   // J, by all tries
  std::optional<double> by_default;  // J: a run at the default batch size and the highest setting
  double by_default_sd = 0;          // relative

  // Of a run to the target, J.
  double log_cost(std::size_t i) const { return epochs.mean(i) + cost.mean(i); }
  // Of log epochs between runs: the pooled variance, and that epochs are whole.
  double noise(double log_epochs) const;
};

SizeBeliefs believe(const SizeProblem& problem, std::span<const Trial> trials);

// Empty for a batch size that is none of the problem's.
std::optional<std::size_t> place_of(const SizeProblem& problem, int batch_size);

}  // namespace derate
