#include "telemetry/clock_histogram.h"

namespace derate {

void ClockHistogram::add(const Sample& sample) {
  if (last_ && last_->sm_clock) {
    const Duration held = sample.time - last_->time;
    if (held > Duration::zero()) bins_[*last_->sm_clock] += std::min(held, max_hold_);
  }
  last_ = sample;
}

std::optional<Megahertz> ClockHistogram::mean() const {
  double weighted = 0, total = 0;
  for (const auto& [clock, time] : bins_) {
    weighted += clock.value() * seconds(time);
    total += seconds(time);
  }
  if (total <= 0) return std::nullopt;
  return Megahertz(weighted / total);
}

}  // namespace derate
