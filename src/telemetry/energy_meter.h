// Joules from samples: the energy counter where there is one, else power times time.
#pragma once

#include <optional>

#include "core/sample.h"

namespace derate {

// The quickest true reading of the board's power; empty when the sample has none.
std::optional<Watts> board_power(const Sample& sample);

// Takes every sample in order of time. Between two readings of the counter its difference counts; a
// counter that goes back (driver reload, wrap) or is absent is bridged by holding each power
// reading until the next one. A hole in the samples longer than `max_gap` is bridged by nothing but
// the counter, and told.
class EnergyMeter {
 public:
  explicit EnergyMeter(Duration max_gap = std::chrono::seconds(2)) : max_gap_(max_gap) {}

  void add(const Sample& sample);

  // Since the first sample. Empty when there was neither a counter nor power.
  std::optional<Joules> total() const;
  // From the first sample to the last.
  Duration elapsed() const;
  std::optional<Watts> mean_power() const;
  // The mean of the power readings, each held until the next: for spans that are short against the
  // pace at which the counter is read.
  std::optional<Watts> mean_reading() const;
  // The same span by power readings alone: a cross-check of the counter.
  std::optional<Joules> integrated() const;
  bool from_counter() const { return counter_spans_ > 0 && counter_resets_ == 0; }
  int counter_resets() const { return counter_resets_; }
  // Time without samples that no counter covers.
  Duration uncovered() const { return uncovered_; }

 private:
  void add_counter(const Sample& sample);

  Duration max_gap_;
  std::optional<Sample> first_, last_;
  std::optional<Watts> last_power_;
  std::optional<Joules> counter_;      // newest reading
  Joules counted_{};                   // by the counter, up to its newest reading
  Joules integrated_since_counter_{};  // by power, since then
  Joules integrated_{};
  Duration integrated_time_{};  // that integrated_ covers
  Duration uncovered_{}, uncovered_since_counter_{};
  bool any_power_ = false;
  int counter_spans_ = 0;
  int counter_resets_ = 0;
};

}  // namespace derate
