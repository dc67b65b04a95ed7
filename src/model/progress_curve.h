// The curve of a job's progress by clock, learned while it runs, with its uncertainty.
//
// With x = log(highest clock / clock), the log of performance relative to the highest clock is
//
//     L(x) = a x + b x^2
//
// a = -1, b = 0 being work that follows the clock, a = b = 0 work that does not. A counter k that
// stands for progress shows
//
//     log s_k = level_k + L(x) + c_k x + d_k x^2 + noise
//
// where (c, d) is its bias: what it says besides. Everything is Gaussian and linear, so the
// posterior of (a, b, and of each counter level, c, d) is exact. The priors of (a, b) and (c, d)
// are those of measured applications (model/curve_priors.h); of a level nothing is known before.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "model/linear_belief.h"

namespace derate {

// Of the two coefficients of a curve.
struct CoefficientPrior {
  std::array<double, 2> mean{};
  std::array<double, 3> covariance{};  // of 1 and 1, 1 and 2, 2 and 2
};

// Of the coefficients of one curve with those of another: first with first, first with second,
// second with first, second with second.
using CrossCovariance = std::array<double, 4>;

class ProgressCurve {
 public:
  static constexpr std::size_t kMostCounters = 4;

  // `bias`: of each counter, at most kMostCounters.
  ProgressCurve(const CoefficientPrior& curve, std::span<const CoefficientPrior> bias);

  // That the curve goes with the bias of a counter, or that of counter k with that of l, before
  // anything is observed.
  void relate(std::size_t k, const CrossCovariance& with_curve);
  void relate(std::size_t k, std::size_t l, const CrossCovariance& cross);

  // A reading of counter k at x, its log, and the variance of that log, at least that of 0.1 %.
  void observe(std::size_t counter, double x, double log_value, double variance);

  // Log of performance at x relative to that at `reference`.
  Belief performance(double x, double reference = 0) const;
  // The standard deviation of performance(x) that it would have if the level of counter k were
  // known.
  double sd_with_level(std::size_t counter, double x) const;
  // What counter k would show, in logs, its own noise left out.
  Belief reading(std::size_t counter, double x) const;
  double level(std::size_t counter) const;
  // How well the level of counter k is known; very large before its first reading.
  double level_sd(std::size_t counter) const;
  // How far the bias of counter k lies from what its prior says, in the prior's standard deviations
  // by coefficient. Counters that contradict each other have large ones.
  double strain(std::size_t counter) const;
  // What counter k says besides progress, at x relative to `reference`, in logs.
  Belief bias(std::size_t counter, double x, double reference) const;
  // Of log s_k at x, beyond what its prior says.
  double bias_beyond_prior(std::size_t counter, double x) const;

  // The level of counter k may have moved: its variance grows by that.
  void drift(std::size_t counter, double variance);
  // The level of counter k moves by itself from now on, by so much of its log a second: 0 +- `sd`
  // before anything is observed. Once, of one counter.
  void add_trend(std::size_t counter, double sd);
  // Time goes on: that level follows its trend. Both variances are of what else may have moved it,
  // and of how the trend may have changed.
  struct Passage {
    double seconds = 0, level_variance = 0, trend_variance = 0;
  };
  void pass(const Passage& passage);
  // Of that level, a second, in logs; 0 and sure without one.
  Belief trend() const;
  // What is known becomes less sure, and levels may have moved: every variance grows by this share
  // of the prior's, a level's by `level_variance`.
  void age(double share, double level_variance);

  const LinearBelief& belief() const { return belief_; }
  // Takes what another curve of the same counters knew.
  void recall(const LinearBelief& belief) { belief_ = belief; }

 private:
  LinearBelief::Row row(std::size_t counter, double x) const;

  CoefficientPrior curve_;
  std::vector<CoefficientPrior> bias_;
  LinearBelief belief_;
  struct Trend {
    std::size_t level, at;
  };
  std::optional<Trend> trend_;
};

}  // namespace derate
