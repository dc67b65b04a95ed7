// Energy of ticks if the energy counter is read less often than ticks come. Between two readings a
// tick has power times time. After a reading, the next ticks share the difference to the counter.
// Over time the ticks add up to the counter.
#pragma once

#include <cstdint>

namespace derate {

// Millijoules.
class PacedCounter {
 public:
  // Returns the energy of a tick without a reading, by its power.
  std::int64_t between(double power_mj);
  // Returns the energy of the tick of a reading. `counted_mj`: the counter's step since the reading
  // before.
  std::int64_t at_reading(std::int64_t counted_mj, double power_mj);

  // The same if the tick's power is not known: the tick has all that is owed.
  std::int64_t settle(std::int64_t counted_mj);
  // Power gave that to ticks before the first call, and no reading has counted it yet.
  void take_over(std::int64_t ahead_mj) { uncounted_mj_ += static_cast<double>(ahead_mj); }

  // There were ticks since the last reading, or what it said is not wholly given yet.
  bool is_open() const { return open_; }
  // Given to ticks beyond the last reading.
  std::int64_t ahead_mj() const;

 private:
  bool open_ = false;
  double uncounted_mj_ = 0;  // by power, since the last reading
  double owed_mj_ = 0;       // counted and not given yet; below 0: too much was given
};

}  // namespace derate
