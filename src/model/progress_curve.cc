#include "model/progress_curve.h"

#include <Eigen/Dense>
#include <cmath>

namespace derate {
namespace {

constexpr double kUnknown = 1e3;  // sd of a level, in logs: anything
constexpr std::size_t kCurve = 2, kPerCounter = 3;

using Vector = Eigen::Map<Eigen::VectorXd>;
using Matrix = Eigen::Map<Eigen::MatrixXd>;
using ConstVector = Eigen::Map<const Eigen::VectorXd>;
using ConstMatrix = Eigen::Map<const Eigen::MatrixXd>;

Eigen::Index index(std::size_t i) { return static_cast<Eigen::Index>(i); }

void put(Vector& mean, Matrix& covariance, std::size_t at, const CoefficientPrior& prior) {
  mean.segment<2>(index(at)) = Eigen::Vector2d(prior.mean[0], prior.mean[1]);
  covariance.block<2, 2>(index(at), index(at)) << prior.covariance[0], prior.covariance[1],
      prior.covariance[1], prior.covariance[2];
}

std::size_t level_of(std::size_t counter) { return kCurve + kPerCounter * counter; }

}  // namespace

ProgressCurve::ProgressCurve(const ProgressPrior& prior)
    : size_(kCurve + kPerCounter * prior.bias.size()), mean_(size_), covariance_(size_ * size_) {
  Vector mean(mean_.data(), index(size_));
  Matrix covariance(covariance_.data(), index(size_), index(size_));
  put(mean, covariance, 0, prior.curve);
  for (std::size_t k = 0; k < prior.bias.size(); ++k) {
    covariance(index(level_of(k)), index(level_of(k))) = kUnknown * kUnknown;
    put(mean, covariance, level_of(k) + 1, prior.bias[k]);
  }
}

std::vector<double> ProgressCurve::row(std::size_t counter, double x) const {
  std::vector<double> out(size_);
  out[0] = x;
  out[1] = x * x;
  out[level_of(counter)] = 1;
  out[level_of(counter) + 1] = x;
  out[level_of(counter) + 2] = x * x;
  return out;
}

Belief ProgressCurve::project(const std::vector<double>& row) const {
  const ConstVector h(row.data(), index(size_)), mean(mean_.data(), index(size_));
  const ConstMatrix covariance(covariance_.data(), index(size_), index(size_));
  return {h.dot(mean), std::sqrt(std::max(0.0, h.dot(covariance * h)))};
}

// The Kalman update of one reading, in Joseph's form, which keeps the covariance positive.
void ProgressCurve::observe(std::size_t counter, double x, double log_value, double variance) {
  const std::vector<double> values = row(counter, x);
  const ConstVector h(values.data(), index(size_));
  Vector mean(mean_.data(), index(size_));
  Matrix covariance(covariance_.data(), index(size_), index(size_));
  const Eigen::VectorXd with = covariance * h;
  const Eigen::VectorXd gain = with / (h.dot(with) + variance);
  mean += gain * (log_value - h.dot(mean));
  const Eigen::MatrixXd keep =
      Eigen::MatrixXd::Identity(index(size_), index(size_)) - gain * h.transpose();
  covariance = keep * covariance * keep.transpose() + gain * variance * gain.transpose();
}

Belief ProgressCurve::performance(double x) const {
  std::vector<double> values(size_);
  values[0] = x;
  values[1] = x * x;
  return project(values);
}

double ProgressCurve::sd_with_level(std::size_t counter, double x) const {
  const ConstMatrix covariance(covariance_.data(), index(size_), index(size_));
  Eigen::VectorXd h = Eigen::VectorXd::Zero(index(size_));
  h.head<2>() << x, x * x;
  const Eigen::VectorXd with = covariance * h;
  const Eigen::Index level = index(level_of(counter));
  const double shared = with(level) * with(level) / covariance(level, level);
  return std::sqrt(std::max(0.0, h.dot(with) - shared));
}

Belief ProgressCurve::reading(std::size_t counter, double x) const {
  return project(row(counter, x));
}

double ProgressCurve::level_sd(std::size_t counter) const {
  const std::size_t at = level_of(counter);
  return std::sqrt(covariance_[at * size_ + at]);
}

}  // namespace derate
