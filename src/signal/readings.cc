#include "signal/readings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace derate {
namespace {

constexpr double kMemory = 0.02;      // weight of the newest difference of two readings
constexpr double kFirstNoise = 0.03;  // relative sd, before there are
constexpr int kFewDifferences = 4;
constexpr double kMostOfNoise = 16;  // times the variance
constexpr int kMostBlocks = 100;     // differences that kMemory remembers
constexpr double kSame = 1e-9;       // of two readings, as shares
constexpr int kFewChanges = 4;       // before the grain is known

}  // namespace

// `most` of the variance so far is taken of one difference, once there are some.
void Readings::Noise::add(double difference, double most) {
  double square = difference * difference / 2;
  if (differences >= kFewDifferences) square = std::min(square, most * variance);
  // The first few count alike, then the newest has a small share.
  variance += std::max(kMemory, 1.0 / ++differences) * (square - variance);
}

void Readings::add(double value) {
  ++count_;
  sum_ += value;
  if (last_) {
    noise_.of_one.add(value - *last_, kMostOfNoise);  // a jump is no noise
    const double apart = std::abs(value - *last_);
    if (apart > kSame && (noise_.changes++ == 0 || apart < noise_.grain)) noise_.grain = apart;
  }
  last_ = value;
  block_sum_ += value;
  if (count_ % kBlock != 0) return;
  const double block = std::exchange(block_sum_, 0) / kBlock;
  if (last_block_)
    noise_.of_blocks.add(block - *last_block_, std::numeric_limits<double>::infinity());
  last_block_ = block;
}

double Readings::variance(double step) const {
  const double rounding = step * step / 12;
  const Noise& noise = noise_.of_one;
  if (noise.differences >= kFewDifferences) return std::max(noise.variance, rounding);
  const double first = kFirstNoise * (count_ > 0 ? mean() : 0);
  return std::max({first * first, noise.variance, rounding});
}

// Variance of the mean that rounding leaves: the error of one reading, less by what noise of that
// sd evens out (the first harmonic of the error of a quantiser with Gaussian dither).
double Readings::rounding_left(double step) const {
  const double grain = noise_.grain;
  if (noise_.changes < kFewChanges || grain < 1.5 * step) return 0;
  const double rounding = grain * grain / 12;
  const double dither = std::max(0.0, noise_.of_one.variance - rounding) / (grain * grain);
  return rounding * std::exp(-4 * std::numbers::pi * std::numbers::pi * dither);
}

double Readings::relative_variance(double step) const {
  return (variance(step) / count_ + rounding_left(step)) / (mean() * mean());
}

double Readings::independent_share() const {
  const Noise &one = noise_.of_one, &blocks = noise_.of_blocks;
  if (blocks.differences < kFewBlocks || one.variance <= 0) return 1;
  const double effective = std::min(blocks.differences, kMostBlocks);
  const double upper = 1 + std::sqrt(2.0 / effective);
  const double of_mean = upper * kBlock * blocks.variance / one.variance;  // 1 where independent
  return std::clamp((of_mean - 1.0 / kBlock) / (1 - 1.0 / kBlock), 0.0, 1.0);
}

}  // namespace derate
