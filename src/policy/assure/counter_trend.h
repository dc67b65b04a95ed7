// The trend of a counter while the clock is held. If the counter moves by itself, its gain wanders,
// or the work has another pace.
#pragma once

#include <optional>

#include "base/units.h"

namespace derate {

class CounterTrend {
 public:
  // A mean of readings at x (model/progress_curve.h), read until `time`: its log and the variance
  // of that.
  void add(Instant time, double x, double log_reading, double variance);
  // So much the log of the readings moves in a second, either way, beyond what noise explains (two
  // standard deviations). Earlier trends fade over two minutes.
  double per_second(Instant now) const;

 private:
  double slope() const;  // less its doubt, at the clock held now

  double x_ = -1;
  Instant last_{};
  // Weighted sums over the readings at this clock; times since `last_`, old ones count less.
  double weight_ = 0, time_ = 0, reading_ = 0, time2_ = 0, time_reading_ = 0;
  double earlier_ = 0;  // at clocks before
  Instant earlier_at_{};
};

}  // namespace derate
