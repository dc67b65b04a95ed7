// The trend of a rate of beats while the clock is held. If it moves by itself, each beat or launch
// stands for other work than before, or the work has another pace.
#pragma once

#include <optional>

#include "base/units.h"

namespace derate {

class RateTrend {
 public:
  // A mean of the rate at x (model/progress_curve.h), read until `time`: its log and the variance
  // of that.
  void add(Instant time, double x, double log_rate, double variance);
  // So much the log of the rate moves in a second, either way, beyond what noise explains (two
  // standard deviations). Earlier trends fade over two minutes.
  double per_second(Instant now) const;

 private:
  double slope() const;  // less its doubt, at the clock held now

  double x_ = -1;
  Instant last_{};
  // Weighted sums over the readings at this clock; times since `last_`, old ones count less.
  double weight_ = 0, time_ = 0, rate_ = 0, time2_ = 0, time_rate_ = 0;
  double earlier_ = 0;  // at clocks before
  Instant earlier_at_{};
};

}  // namespace derate
