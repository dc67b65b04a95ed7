#include "attrib/samples/share_balance.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kBalanceMemoryS = 600;
// Before anything was seen: the variance of a tick's differences, their correlation from tick to
// tick, and of how many ticks that counts.
constexpr double kVariance = 0.05, kCorrelated = 0.8, kTicks = 60;
constexpr double kLeastVariance = 1e-4, kMostCorrelated = 0.95;

}  // namespace

void ShareBalance::add(double off, double seconds) {
  const double keep = std::exp(-seconds / kBalanceMemoryS);
  ticks_ = keep * ticks_ + 1;
  sum_ = keep * sum_ + off;
  square_ = keep * square_ + off * off;
  product_ = keep * product_ + off * before_;
  before_ = off;
}

double ShareBalance::surprise() const {
  if (ticks_ <= 1) return 0;
  const double mean = sum_ / ticks_, square = ticks_ * mean * mean;
  const double all = std::max(0.0, square_ - square) + kTicks * kVariance;
  const double correlated = std::clamp((product_ - square + kCorrelated * kTicks * kVariance) / all,
                                       0.0, kMostCorrelated);
  const double variance = all / (ticks_ + kTicks) + kLeastVariance;
  return square / variance * (1 - correlated) / (1 + correlated);
}

}  // namespace derate
