// Judges by the power readings whether a GPU's energy counter can be used.
#pragma once

#include <cstdint>
#include <optional>

#include "core/counter_watch.h"
#include "core/sample.h"
#include "telemetry/energy_odometer.h"

namespace derate {

class MeterWatch {
 public:
  // The time over which counter and power are compared.
  static constexpr Duration kCompared = std::chrono::seconds(60);
  enum class State : std::uint8_t {
    sound,
    still,    // the counter does not move while power is drawn; until it has been compared again
    differs,  // the counter moves, and does not match the power
  };

  // Between readings further apart, power is not integrated.
  void set_max_gap(Duration max_gap) { odometer_.set_max_gap(max_gap); }
  // Takes the next sample, in order of time. True if the state has changed.
  bool add(const Sample& sample);
  State state() const { return state_; }
  // Power / counter, of the newest time in which they were compared.
  std::optional<double> ratio() const { return ratio_; }

 private:
  State judged(const Sample& sample);

  CounterWatch counter_;
  EnergyOdometer odometer_;
  EnergyTotals begin_;            // at the beginning of the comparison
  std::optional<Instant> moves_;  // since when the counter has moved, after it stood still
  State state_ = State::sound;
  std::optional<double> ratio_;
};

}  // namespace derate
