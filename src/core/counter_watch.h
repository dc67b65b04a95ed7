// Separates an energy counter that counts from a counter that only answers.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace derate {

// A board never draws 0 W, and all known counters move in steps of 0.1 s (docs/sensors.md). An
// unchanged reading is no reading. A counter that is unchanged for kStillFor, in at least
// kStillReadings repeats, is missing until it moves; its new value is a new start. A time without
// readings is no evidence.
class CounterWatch {
 public:
  // Assumed: no counter takes longer for a step.
  static constexpr Duration kStillFor = std::chrono::seconds(3);
  static constexpr int kStillReadings = 3;

  enum class Verdict : std::uint8_t { moved, unmoved, still };
  // Readings come in order of time.
  Verdict judge(Joules reading, Instant now) {
    if (reading_ != reading) {
      reading_ = reading;
      moved_ = now;
      same_ = 0;
      return Verdict::moved;
    }
    ++same_;
    const bool still = same_ >= kStillReadings && now - moved_ >= kStillFor;
    return still ? Verdict::still : Verdict::unmoved;
  }
  // When the reading last changed.
  Instant moved() const { return moved_; }

 private:
  std::optional<Joules> reading_;
  Instant moved_{};
  int same_ = 0;  // unchanged readings since then
};

}  // namespace derate
