// Statistics of a power filter's innovations, the differences between the board's power and its
// prediction: the sensor's noise, their autocorrelation, and signs that an estimate of watts is
// wrong.
#pragma once

#include <optional>

#include "base/units.h"

namespace derate {

// Under the power limit the sum says little of who makes it.
inline constexpr double kCappedNoise = 1, kHardlyCapped = 0.05;
// W; the base keeps at least this uncertainty: one that was measured to the watt drifts, too.
inline constexpr double kLeastBaseSd = 5;

class SensorNoise {
 public:
  // The variance of one reading, W^2, at that dynamic power, W.
  double variance(double dynamic_w) const;
  // The same as it counts for what is learned: what is off stays off for some ticks.
  double counted_variance(double dynamic_w) const;
  // `off_w` is the power less what was foretold, `variance` all that was expected of its square.
  // Unless `tells`, nothing but the next comparison comes of it.
  void learn(double off_w, double variance, double dynamic_w, double seconds, bool tells);

 private:
  double part2_ = 0.03 * 0.03;  // of the dynamic power's square
  std::optional<double> last_off_;
};

// How much the errors of one tick are those of the tick before. A filter takes them for
// independent; where they are not, what it learned is worth less than it believes.
class Whiteness {
 public:
  // In standard deviations.
  void add(double deviations, double seconds);
  // What a variance that was learned must be multiplied by: of the mean of errors with such an
  // autocorrelation r from tick to tick, (1 + r) / (1 - r); at least 1.
  double inflation() const;

 private:
  double last_ = 0, square_ = 0, product_ = 0;  // of late
};

// How much of what the tenants draw no counter foretells: the mean distance of the power from what
// was foretold, of the mean dynamic power, over the last five minutes. Tenants whose counters tell
// what they do leave 0.02 to 0.13 of it in the lab's worlds.
class Unexplained {
 public:
  void add(double off_w, double dynamic_w, double seconds);
  // At most 1. Empty in the first minute.
  std::optional<Fraction> share() const;

 private:
  double seen_s_ = 0, off_ = 0, dynamic_ = 0;  // of late
};

// One reading far off is an outlier. Several in a row on one side are a belief that is wrong.
class Streak {
 public:
  // In standard deviations. True at the last of several; then it begins anew.
  bool add(double deviations);

 private:
  int count_ = 0;  // below 0 on the lower side
};

}  // namespace derate
