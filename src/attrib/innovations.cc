#include "attrib/innovations.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace derate {
namespace {

constexpr double kConstantW = 1.0;
constexpr double kTimes = 2;
constexpr double kMemory = 0.98;                 // a second
constexpr double kLeast2 = 1e-5, kMost2 = 0.05;  // of the dynamic power's square
constexpr double kLeastDynamicW = 10;            // below, nothing is seen of such a part

}  // namespace

double SensorNoise::variance(double dynamic_w) const {
  return kConstantW * kConstantW + part2_ * dynamic_w * dynamic_w;
}

double SensorNoise::counted_variance(double dynamic_w) const {
  return kConstantW * kConstantW + kTimes * part2_ * dynamic_w * dynamic_w;
}

// Noise is what is off by another amount from tick to tick: what stays off is a belief that is
// wrong, and taken for noise it would never be mended.
void SensorNoise::learn(double off_w, double variance, double dynamic_w, double seconds,
                        bool tells) {
  const double jump = off_w - last_off_.value_or(off_w);
  last_off_ = off_w;
  if (dynamic_w <= kLeastDynamicW || !tells) return;
  const double changes = std::min(jump * jump / 2, 9 * variance);
  const double left = std::max(0.0, std::min(changes, off_w * off_w) - kConstantW * kConstantW);
  const double memory = std::pow(kMemory, seconds);
  part2_ = memory * part2_ + (1 - memory) * left / (dynamic_w * dynamic_w);
  part2_ = std::clamp(part2_, kLeast2, kMost2);
}

void Whiteness::add(double deviations, double seconds) {
  constexpr double kFar = 3;
  const double now = std::clamp(deviations, -kFar, kFar);
  const double memory = std::pow(kMemory, seconds);
  product_ = memory * product_ + (1 - memory) * now * std::exchange(last_, now);
  square_ = memory * square_ + (1 - memory) * now * now;
}

double Whiteness::inflation() const {
  constexpr double kMost = 0.9;
  if (square_ <= 0) return 1;
  const double r = std::clamp(product_ / square_, 0.0, kMost);
  return (1 + r) / (1 - r);
}

void Unexplained::add(double off_w, double dynamic_w, double seconds) {
  constexpr double kMemoryS = 300;
  const double memory = std::exp(-seconds / kMemoryS);
  off_ = memory * off_ + (1 - memory) * std::abs(off_w);
  dynamic_ = memory * dynamic_ + (1 - memory) * std::max(0.0, dynamic_w);
  seen_s_ += seconds;
}

std::optional<Fraction> Unexplained::share() const {
  constexpr double kFirstS = 60;
  if (seen_s_ < kFirstS || dynamic_ <= 0) return std::nullopt;
  return Fraction(std::min(1.0, off_ / dynamic_));
}

bool Streak::add(double deviations) {
  constexpr double kFar = 2.5;
  constexpr int kSeveral = 3;
  const int side = deviations > kFar ? 1 : deviations < -kFar ? -1 : 0;
  count_ = side != 0 && side * count_ >= 0 ? count_ + side : side;
  if (std::abs(count_) < kSeveral) return false;
  count_ = 0;
  return true;
}

}  // namespace derate
