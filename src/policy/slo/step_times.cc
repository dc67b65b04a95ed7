#include "policy/slo/step_times.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kReadingSd = 0.1;    // of one interval, a log; requests differ in their contexts
constexpr double kModelSd = 0.03;     // what the form of the law leaves open
constexpr double kInThousand = 3.09;  // standard deviations
constexpr double kForget = 0.02;      // of the root mean square, an observation

LinearBelief::Row row(double x, double running) {
  LinearBelief::Row out{};
  out[0] = 1, out[1] = x, out[2] = running;
  return out;
}

}  // namespace

StepTimes::StepTimes() : belief_(3) {
  belief_.set_mean(0, std::log(0.03));
  belief_.set_covariance(0, 0, 2.25);  // from 7 ms to 130 ms in one standard deviation
  belief_.set_mean(1, 0.8);
  belief_.set_covariance(1, 1, 0.25 * 0.25);
  belief_.set_mean(2, 0.01);
  belief_.set_covariance(2, 2, 0.02 * 0.02);
}

void StepTimes::observe(double x, double running, double seconds, double intervals) {
  if (seconds <= 0 || intervals <= 0) return;
  const double variance = kReadingSd * kReadingSd / intervals + kModelSd * kModelSd;
  const double value = std::log(seconds);
  if (observed_) {
    const double off = value - belief_.project(row(x, running)).mean;
    off_ = std::sqrt((1 - kForget) * off_ * off_ + kForget * off * off);
  }
  belief_.observe(row(x, running), value, variance);
  observed_ = true;
}

std::optional<double> StepTimes::expected(double x, double running) const {
  if (!observed_) return std::nullopt;
  return std::exp(belief_.project(row(x, running)).mean);
}

std::optional<double> StepTimes::slowest(double x, double running) const {
  if (!observed_) return std::nullopt;
  const Belief log = belief_.project(row(x, running));
  return std::exp(log.mean + kInThousand * std::hypot(log.sd, off_));
}

}  // namespace derate
