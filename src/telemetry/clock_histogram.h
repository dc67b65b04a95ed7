// The time that a GPU ran at each clock.
#pragma once

#include <map>
#include <optional>

#include "core/sample.h"

namespace derate {

class ClockHistogram {
 public:
  // Each sample's clock is held until the next sample, for at most `max_hold`.
  explicit ClockHistogram(Duration max_hold = std::chrono::seconds(2)) : max_hold_(max_hold) {}
  void add(const Sample& sample);
  // Time by clock, ascending.
  const std::map<Megahertz, Duration>& bins() const { return bins_; }
  std::optional<Megahertz> mean() const;

 private:
  Duration max_hold_;
  std::optional<Sample> last_;
  std::map<Megahertz, Duration> bins_;
};

}  // namespace derate
