#include "model/power_curve.h"

#include <algorithm>
#include <cmath>

namespace derate {

PowerCurve::PowerCurve(const CoefficientPrior& prior) {
  constexpr double kUnknown = 30;  // sd of the level, in logs: anything
  belief_.set_covariance(0, 0, kUnknown * kUnknown);
  belief_.set_mean(1, prior.mean[0]);
  belief_.set_mean(2, prior.mean[1]);
  belief_.set_covariance(1, 1, prior.covariance[0]);
  belief_.set_covariance(1, 2, prior.covariance[1]);
  belief_.set_covariance(2, 2, prior.covariance[2]);
}

void PowerCurve::observe(double x, Watts mean, double relative_variance) {
  if (mean <= Watts(0)) return;
  belief_.observe({1, x, x * x}, std::log(mean.value()), std::max(relative_variance, 1e-6));
}

Belief PowerCurve::relative(double x) const { return belief_.project({0, x, x * x}); }

Belief PowerCurve::power(double x) const { return belief_.project({1, x, x * x}); }

}  // namespace derate
