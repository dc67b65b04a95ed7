// Joules from samples: the energy counter where there is one, else power times time.
#pragma once

#include <optional>

#include "core/sample.h"
#include "telemetry/energy_odometer.h"

namespace derate {

// The energy of one GPU from its first sample to its last. The odometer records how each part of it
// was measured. Takes every sample in order of time.
class EnergyMeter {
 public:
  explicit EnergyMeter(Duration max_gap = std::chrono::seconds(2)) : odometer_(max_gap) {}

  void add(const Sample& sample);

  // Since the first sample. Empty when there was neither a counter nor power.
  std::optional<Joules> total() const;
  // From the first sample to the last.
  Duration elapsed() const { return totals_.time - first_.value_or(Instant{}); }
  std::optional<Watts> mean_power() const;
  // The mean of the power readings, each held until the next: for spans that are short against the
  // pace at which the counter is read.
  std::optional<Watts> mean_reading() const;
  // The same span by power readings alone: a cross-check of the counter.
  std::optional<Joules> integrated() const;
  // The counter has moved, and never restarted or stood still.
  bool from_counter() const;
  int counter_resets() const { return totals_.resets; }
  // Time in which the counter was read and did not move: power stands in.
  Duration counter_still() const { return totals_.still; }
  // Integrated / counted; empty: too short to compare.
  std::optional<double> check_ratio() const { return derate::check_ratio({}, totals_); }
  // Time without samples that no counter covers.
  Duration uncovered() const { return totals_.uncovered; }

 private:
  EnergyOdometer odometer_;
  std::optional<Instant> first_;
  EnergyTotals totals_;  // as of the last sample
  bool any_power_ = false;
};

}  // namespace derate
