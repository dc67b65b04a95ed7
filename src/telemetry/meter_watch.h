// Judges a GPU's energy counter by its power readings: whether it can be used.
#pragma once

#include <cstdint>
#include <optional>

#include "core/counter_watch.h"
#include "core/sample.h"
#include "telemetry/energy_odometer.h"

namespace derate {

class MeterWatch {
 public:
  // Counter and power are compared over so long.
  static constexpr Duration kCompared = std::chrono::seconds(60);
  enum class State : std::uint8_t {
    sound,
    still,    // the counter does not move while power is drawn; until it has been compared again
    differs,  // it moves, and what it shows is not what the power comes to
  };

  // Readings further apart are not bridged by their power.
  void set_max_gap(Duration max_gap) { odometer_.set_max_gap(max_gap); }
  // The next sample, in order of time. True when the state is another than before.
  bool add(const Sample& sample);
  State state() const { return state_; }
  // Power / counter, of the newest stretch that was compared.
  std::optional<double> ratio() const { return ratio_; }

 private:
  State judged(const Sample& sample);

  CounterWatch counter_;
  EnergyOdometer odometer_;
  EnergyTotals begin_;            // of the stretch
  std::optional<Instant> moves_;  // since when it does, after it stood still
  State state_ = State::sound;
  std::optional<double> ratio_;
};

}  // namespace derate
