// An upper bound of the share of late tokens, by counts, that holds at every moment at once.
//
// In step i of an engine n_i tokens come, at most `most_in_step`; of these X_i are late: all have
// one time stamp, so that a step and not a token is what is sampled. Let m_i = E[X_i | the past].
// With probability 1 - alpha, for all t:
//
//     sum m_i <= sum X_i + u(V_t),   V_t = sum (X_i - 0)^2
//
// where u is a boundary for sub-gamma processes of scale most_in_step: Howard, Ramdas, McAuliffe
// and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences" (Annals of
// Statistics 49(2), 2021), theorem 4 with 0 as the prediction and the stitched boundary of theorem
// 1 with eta = 2, h(k) = zeta(1.4) (k + 1)^1.4. Steps may depend on each other in any way. An
// engine's metrics count tokens and not steps: V is at most most_in_step times the late tokens,
// which is what is used.
#pragma once

#include <optional>

namespace derate {

class ViolationBound {
 public:
  ViolationBound(double most_in_step, double alpha) : most_(most_in_step), alpha_(alpha) {}

  void add(double tokens, double late);
  void begin_anew() { tokens_ = late_ = 0; }

  double tokens() const { return tokens_; }
  // The share that was late. Empty: there was no token.
  std::optional<double> share() const;
  // The mean of the conditional probabilities, weighted by tokens, is at most this. Empty: there
  // was no token; 1: nothing is known.
  std::optional<double> at_most() const;

 private:
  double most_, alpha_;
  double tokens_ = 0, late_ = 0;
};

// The stitched boundary u(v) of scale c at level alpha, for v at least `from`.
double stitched_boundary(double v, double c, double alpha, double from);

}  // namespace derate
