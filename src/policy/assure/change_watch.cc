#include "policy/assure/change_watch.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kDrift = 0.5, kAlarm = 12;
constexpr double kMost = 7;  // one reading alone raises no alarm
constexpr double kFarOut = 5;
constexpr int kFewestOfChange = 2;
constexpr double kUtilisation = 0.02, kShare = 0.01;  // sd at least, of what rests against its end
constexpr double kPower = 0.04;                       // sd at least, relative: operand data, heat

}  // namespace

bool Cusum::add(double innovation) {
  const double e = std::clamp(innovation, -kMost, kMost);
  up_ = std::max(0.0, up_ + e - kDrift);
  down_ = std::max(0.0, down_ - e - kDrift);
  return std::max(up_, down_) > kAlarm;
}

bool ChangeWatch::Stream::add(double value, double least_sd) {
  if (readings.count() < kFewestOfChange) {
    readings.add(value);
    return false;
  }
  const double sd = std::max(std::sqrt(readings.variance(0)), least_sd);
  const double e = (value - readings.mean()) / (sd * std::sqrt(1 + 1.0 / readings.count()));
  // What lies far out is not compared with itself later.
  if (std::abs(e) < kFarOut) readings.add(value);
  return sum.add(e);
}

// The noise is still that of the sensors.
void ChangeWatch::Stream::clear() {
  readings.clear();
  sum = {};
}

void ChangeWatch::clear() {
  for (Stream& stream : signals_) stream.clear();
  utilisation_.clear();
  power_.clear();
}

bool ChangeWatch::add(const Estimate& estimate, const SignalValues& signals) {
  bool alarm = false;
  for (std::size_t i = 0; i < kSignals; ++i)
    if (signals[i] && static_cast<Signal>(i) != Signal::beat)
      alarm |= signals_[i].add(*signals[i], std::max(kShare, kPower / 2 * *signals[i]));
  alarm |= utilisation_.add(estimate.gpu_utilisation->value(), kUtilisation);
  return add_power(estimate) || alarm;
}

bool ChangeWatch::add_power(const Estimate& estimate) {
  return estimate.power && power_.add(estimate.power->value(), kPower * estimate.power->value());
}

}  // namespace derate
