#include "policy/assure/counter_trend.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kSameClock = 0.003;   // of x: the next clock is 0.005 away
constexpr double kMemory = 15;         // s, in which a reading's weight falls to 1/e
constexpr double kFades = 120;         // s
constexpr double kDoubt = 2;           // standard deviations
constexpr double kLeastError = 0.002;  // of a reading: edges of the clock's change
constexpr double kLeastSpan = 1;       // s^2: the readings' variance in time

}  // namespace

double CounterTrend::slope() const {
  if (weight_ <= 0) return 0;
  const double mean = time_ / weight_;
  const double spread = time2_ - weight_ * mean * mean;  // weighted
  if (spread < kLeastSpan * weight_) return 0;
  const double slope = (time_reading_ - mean * reading_) / spread;
  return std::max(0.0, std::abs(slope) - kDoubt / std::sqrt(spread));
}

double CounterTrend::per_second(Instant now) const {
  return std::max(slope(), earlier_ * std::exp(-seconds(now - earlier_at_) / kFades));
}

void CounterTrend::add(Instant time, double x, double log_reading, double variance) {
  earlier_ = per_second(time);
  earlier_at_ = time;
  if (std::abs(x - x_) > kSameClock) {
    weight_ = time_ = reading_ = time2_ = time_reading_ = 0;
    x_ = x;
    last_ = time;
  }
  // Times count from the newest reading: the older ones move back.
  const double precision = 1 / std::max(variance, kLeastError * kLeastError);
  const double since = seconds(time - last_), keep = std::exp(-since / kMemory);
  time2_ = keep * (time2_ - 2 * since * time_ + since * since * weight_);
  time_reading_ = keep * (time_reading_ - since * reading_);
  time_ = keep * (time_ - since * weight_);
  reading_ *= keep;
  weight_ = keep * weight_ + precision;
  reading_ += log_reading * precision;
  last_ = time;
}

}  // namespace derate
