// Separates an energy counter that counts from one that only answers.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace derate {

// A board never draws 0 W, and counters move in steps of 0.1 s on all that we know
// (docs/sensors.md). A reading that is the same as before is no reading; a counter that has shown
// it for kStillFor, in kStillReadings at least, is missing until it moves, and from where it is
// then it begins anew. A time without readings says nothing of the counter.
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
  // Since when it shows what it shows.
  Instant moved() const { return moved_; }

 private:
  std::optional<Joules> reading_;
  Instant moved_{};
  int same_ = 0;  // readings since
};

}  // namespace derate
