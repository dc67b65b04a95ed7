// Late tokens that the clock caused. At clock f a step takes at most (highest / f) times as
// long as at the highest clock, so that an interval of s seconds would have taken at least s times
// the mean of f / highest while it lasted: it is the clock's only if that is within what is
// promised. When it ended is known to the time between two looks, and how long it was to a bucket.
#pragma once

#include <deque>

#include "signal/serving/engine_watch.h"

namespace derate {

// The clock of the last seconds, as a share of the highest.
class ClockHistory {
 public:
  void add(Instant time, double share);
  // The least mean over any interval of that length whose end lies between the two.
  double least_mean(Instant from, Instant to, double length_s) const;

  double mean(Instant from, Instant to) const;

 private:
  struct Point {
    Instant time;
    double share;
  };

  std::deque<Point> points_;  // a share holds until the next point
};

struct LateTokens {
  double tokens = 0, late = 0;
  double caused = 0;       // by the clock, intervals spread evenly over their bucket
  double caused_most = 0;  // ... at most
};

// `edge_s` is an edge of the delta's buckets; the looks were at `from` and `to`.
LateTokens late_tokens(const EngineDelta& delta, double edge_s, const ClockHistory& clocks,
                       Instant from, Instant to);

}  // namespace derate
