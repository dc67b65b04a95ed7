// How a job's progress follows the clock, learned while it runs, with its uncertainty.
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
// are fitted to measured applications (scripts/fit_curve_priors.py); of a level nothing is known
// before.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace derate {

// Of the two coefficients of a curve.
struct CoefficientPrior {
  std::array<double, 2> mean{};
  std::array<double, 3> covariance{};  // of 1 and 1, 1 and 2, 2 and 2
};

struct ProgressPrior {
  CoefficientPrior curve;
  std::vector<CoefficientPrior> bias;  // of each counter
};

struct Belief {
  double mean = 0, sd = 0;
};

class ProgressCurve {
 public:
  explicit ProgressCurve(const ProgressPrior& prior);

  // A reading of counter k at x, its log, and the variance of that log. Cost: O(n^2) of n = 2 + 3
  // per counter.
  void observe(std::size_t counter, double x, double log_value, double variance);

  // Log of performance at x relative to the highest clock.
  Belief performance(double x) const;
  // The standard deviation that it would have if the level of counter k were known.
  double sd_with_level(std::size_t counter, double x) const;
  // What counter k would show, in logs, its own noise left out.
  Belief reading(std::size_t counter, double x) const;
  // How well the level of counter k is known; very large before its first reading.
  double level_sd(std::size_t counter) const;

 private:
  std::vector<double> row(std::size_t counter, double x) const;
  Belief project(const std::vector<double>& row) const;

  std::size_t size_;
  std::vector<double> mean_, covariance_;  // size_, size_ x size_
};

}  // namespace derate
