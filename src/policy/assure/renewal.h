// The interval at which a source renews its readings, learned from when they change. A reading that
// was not renewed since the last tick says nothing new.
#pragma once

#include <optional>

#include "policy/assure/standstill.h"

namespace derate {

class Renewal {
 public:
  // One tick's reading. False: it is the one that was read before. While the interval is not known,
  // or is no longer than kQuick ticks, each reading counts as new.
  bool add(Instant time, const SourceReading& reading);
  static constexpr double kQuick = 1.5;
  // From one renewal to the next, to a tick. Empty: too few changes were seen to know it, as of
  // counters that rest against their end.
  std::optional<Duration> interval() const { return second_; }

 private:
  void learn(Duration between_changes);

  SourceReading last_{};
  Instant read_{};
  std::optional<Instant> changed_;
  Instant renewed_{};
  // The shortest and the second shortest time between two changes: it takes a renewal to change,
  // and one such time alone may be a glitch.
  std::optional<Duration> shortest_, second_;
};

}  // namespace derate
