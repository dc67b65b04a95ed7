#include "model/linear_belief.h"

#include <algorithm>
#include <cmath>

namespace derate {

void LinearBelief::set_covariance(std::size_t i, std::size_t j, double value) {
  covariance_[i * kMost + j] = covariance_[j * kMost + i] = value;
}

std::size_t LinearBelief::append(double variance) {
  const std::size_t at = size_++;
  set_covariance(at, at, variance);
  return at;
}

void LinearBelief::add(std::size_t i, std::size_t j, double factor) {
  mean_[i] += factor * mean_[j];
  const double own =
      covariance(i, i) + 2 * factor * covariance(i, j) + factor * factor * covariance(j, j);
  for (std::size_t k = 0; k < size_; ++k)
    if (k != i) set_covariance(i, k, covariance(i, k) + factor * covariance(j, k));
  set_covariance(i, i, std::max(0.0, own));
}

// The Kalman update of one scalar reading. Both halves of the covariance are set from one, so that
// it stays symmetric; a variance that rounding takes below zero is zero.
void LinearBelief::observe(const Row& row, double value, double variance) {
  Row with{};
  double expected = 0, spread = variance;
  for (std::size_t i = 0; i < size_; ++i) {
    for (std::size_t j = 0; j < size_; ++j) with[i] += covariance(i, j) * row[j];
    expected += row[i] * mean_[i];
    spread += row[i] * with[i];
  }
  if (spread <= 0) return;
  for (std::size_t i = 0; i < size_; ++i) {
    mean_[i] += with[i] / spread * (value - expected);
    for (std::size_t j = 0; j <= i; ++j) {
      const double left = covariance(i, j) - with[i] * with[j] / spread;
      set_covariance(i, j, i == j ? std::max(0.0, left) : left);
    }
  }
}

Belief LinearBelief::project(const Row& row) const {
  double mean = 0, variance = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    mean += row[i] * mean_[i];
    for (std::size_t j = 0; j < size_; ++j) variance += row[i] * covariance(i, j) * row[j];
  }
  return {mean, std::sqrt(std::max(0.0, variance))};
}

}  // namespace derate
