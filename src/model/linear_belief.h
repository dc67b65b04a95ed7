// Gaussian posterior of a few coefficients that act linearly, updated exactly by each reading
// (Bayesian linear regression).
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace derate {

struct Belief {
  double mean = 0, sd = 0;
};

class LinearBelief {
 public:
  static constexpr std::size_t kMost = 14;
  using Row = std::array<double, kMost>;  // the first size() of it count

  // All coefficients 0 and sure. At most kMost of them.
  explicit LinearBelief(std::size_t size) : size_(size) {}

  std::size_t size() const { return size_; }
  double mean(std::size_t i) const { return mean_[i]; }
  double covariance(std::size_t i, std::size_t j) const { return covariance_[i * kMost + j]; }
  void set_mean(std::size_t i, double value) { mean_[i] = value; }
  // Of i and j, and of j and i.
  void set_covariance(std::size_t i, std::size_t j, double value);

  // One more coefficient, independent of the others, of mean 0. Returns its place.
  std::size_t append(double variance);
  // Coefficient i grows by `factor` times coefficient j.
  void add(std::size_t i, std::size_t j, double factor);

  // A reading of row * coefficients with this variance. Cost: O(size^2), nothing allocated.
  void observe(const Row& row, double value, double variance);
  // Of row * coefficients.
  Belief project(const Row& row) const;

 private:
  std::size_t size_;
  Row mean_{};
  std::array<double, kMost * kMost> covariance_{};
};

}  // namespace derate
