#include "policy/slo/violation_bound.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kEta = 2;
constexpr double kPower = 1.4;
constexpr double kZeta = 3.1055472779775815;  // zeta(1.4)

}  // namespace

double stitched_boundary(double v, double c, double alpha, double from) {
  v = std::max(v, from);
  const double epoch = std::log(v / from) / std::log(kEta);
  const double l = kPower * std::log(epoch + 1) + std::log(kZeta / alpha);
  const double k1 = (std::pow(kEta, 0.25) + std::pow(kEta, -0.25)) / std::sqrt(2.0);
  const double k2 = (std::sqrt(kEta) + 1) / 2;
  return std::sqrt(k1 * k1 * v * l + k2 * k2 * c * c * l * l) + k2 * c * l;
}

void ViolationBound::add(double tokens, double late) {
  tokens_ += tokens;
  late_ += late;
}

std::optional<double> ViolationBound::share() const {
  if (tokens_ <= 0) return std::nullopt;
  return late_ / tokens_;
}

std::optional<double> ViolationBound::at_most() const {
  if (tokens_ <= 0) return std::nullopt;
  const double v = most_ * late_, from = most_ * most_;
  return std::min(1.0, (late_ + stitched_boundary(v, most_, alpha_, from)) / tokens_);
}

}  // namespace derate
