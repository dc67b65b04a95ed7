#include "model/progress_curve.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Sd of a level, in logs: anything that a counter can show. More would cost digits.
constexpr double kUnknown = 30;
// No counter says more than a thousandth of itself; less noise than that would cost digits, too.
constexpr double kLeastVariance = 1e-6;
constexpr std::size_t kCurve = 2, kPerCounter = 3;

std::size_t level_of(std::size_t counter) { return kCurve + kPerCounter * counter; }

void put(LinearBelief& belief, std::size_t at, const CoefficientPrior& prior) {
  belief.set_mean(at, prior.mean[0]);
  belief.set_mean(at + 1, prior.mean[1]);
  belief.set_covariance(at, at, prior.covariance[0]);
  belief.set_covariance(at, at + 1, prior.covariance[1]);
  belief.set_covariance(at + 1, at + 1, prior.covariance[2]);
}

void put(LinearBelief& belief, std::size_t at, std::size_t with, const CrossCovariance& cross) {
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 2; ++j) belief.set_covariance(at + i, with + j, cross[2 * i + j]);
}

void widen(LinearBelief& belief, std::size_t at, const CoefficientPrior& prior, double share) {
  const auto add = [&](std::size_t i, std::size_t j, double value) {
    belief.set_covariance(at + i, at + j, belief.covariance(at + i, at + j) + share * value);
  };
  add(0, 0, prior.covariance[0]);
  add(0, 1, prior.covariance[1]);
  add(1, 1, prior.covariance[2]);
}

// Squared distance of the mean from the prior's, in its own covariance, by coefficient.
double distance(const LinearBelief& belief, std::size_t at, const CoefficientPrior& prior) {
  const auto& [v11, v12, v22] = prior.covariance;
  const double determinant = v11 * v22 - v12 * v12;
  if (determinant <= 0) return 0;
  const double u = belief.mean(at) - prior.mean[0], v = belief.mean(at + 1) - prior.mean[1];
  return (u * u * v22 - 2 * u * v * v12 + v * v * v11) / determinant / 2;
}

}  // namespace

ProgressCurve::ProgressCurve(const CoefficientPrior& curve, std::span<const CoefficientPrior> bias)
    : curve_(curve), bias_(bias.begin(), bias.end()), belief_(kCurve + kPerCounter * bias.size()) {
  put(belief_, 0, curve);
  for (std::size_t k = 0; k < bias.size(); ++k) {
    belief_.set_covariance(level_of(k), level_of(k), kUnknown * kUnknown);
    put(belief_, level_of(k) + 1, bias[k]);
  }
}

void ProgressCurve::relate(std::size_t k, const CrossCovariance& with_curve) {
  put(belief_, 0, level_of(k) + 1, with_curve);
}

void ProgressCurve::relate(std::size_t k, std::size_t l, const CrossCovariance& cross) {
  put(belief_, level_of(k) + 1, level_of(l) + 1, cross);
}

LinearBelief::Row ProgressCurve::row(std::size_t counter, double x) const {
  LinearBelief::Row out{x, x * x};
  out[level_of(counter)] = 1;
  out[level_of(counter) + 1] = x;
  out[level_of(counter) + 2] = x * x;
  return out;
}

void ProgressCurve::observe(std::size_t counter, double x, double log_value, double variance) {
  belief_.observe(row(counter, x), log_value, std::max(variance, kLeastVariance));
}

Belief ProgressCurve::performance(double x, double reference) const {
  const double u = x - reference, v = x * x - reference * reference;
  const double variance = u * u * belief_.covariance(0, 0) + 2 * u * v * belief_.covariance(0, 1) +
                          v * v * belief_.covariance(1, 1);
  return {u * belief_.mean(0) + v * belief_.mean(1), std::sqrt(std::max(0.0, variance))};
}

double ProgressCurve::sd_with_level(std::size_t counter, double x) const {
  const std::size_t level = level_of(counter);
  const double with = x * belief_.covariance(0, level) + x * x * belief_.covariance(1, level);
  const double sd = performance(x).sd;
  return std::sqrt(std::max(0.0, sd * sd - with * with / belief_.covariance(level, level)));
}

Belief ProgressCurve::reading(std::size_t counter, double x) const {
  return belief_.project(row(counter, x));
}

double ProgressCurve::level(std::size_t counter) const { return belief_.mean(level_of(counter)); }

double ProgressCurve::level_sd(std::size_t counter) const {
  return std::sqrt(belief_.covariance(level_of(counter), level_of(counter)));
}

double ProgressCurve::strain(std::size_t counter) const {
  return std::sqrt(distance(belief_, level_of(counter) + 1, bias_[counter]));
}

Belief ProgressCurve::bias(std::size_t counter, double x, double reference) const {
  LinearBelief::Row row{};
  row[level_of(counter) + 1] = x - reference;
  row[level_of(counter) + 2] = x * x - reference * reference;
  return belief_.project(row);
}

double ProgressCurve::bias_beyond_prior(std::size_t counter, double x) const {
  const std::size_t at = level_of(counter) + 1;
  const auto& prior = bias_[counter].mean;
  return x * (belief_.mean(at) - prior[0]) + x * x * (belief_.mean(at + 1) - prior[1]);
}

void ProgressCurve::drift(std::size_t counter, double variance) {
  const std::size_t at = level_of(counter);
  belief_.set_covariance(at, at, belief_.covariance(at, at) + variance);
}

void ProgressCurve::add_trend(std::size_t counter, double sd) {
  trend_ = Trend{level_of(counter), belief_.append(sd * sd)};
}

void ProgressCurve::pass(const Passage& passage) {
  const auto& [level, at] = *trend_;
  belief_.add(level, at, passage.seconds);
  belief_.set_covariance(level, level, belief_.covariance(level, level) + passage.level_variance);
  belief_.set_covariance(at, at, belief_.covariance(at, at) + passage.trend_variance);
}

Belief ProgressCurve::trend() const {
  if (!trend_) return {};
  return {belief_.mean(trend_->at), std::sqrt(belief_.covariance(trend_->at, trend_->at))};
}

void ProgressCurve::age(double share, double level_variance) {
  widen(belief_, 0, curve_, share);
  for (std::size_t k = 0; k < bias_.size(); ++k) {
    widen(belief_, level_of(k) + 1, bias_[k], share);
    const std::size_t at = level_of(k);
    belief_.set_covariance(at, at, belief_.covariance(at, at) + level_variance);
  }
}

}  // namespace derate
