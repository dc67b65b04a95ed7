// Notices counters that stand still: readings that repeat where they ought to move. They are then
// missing, not steady.
#pragma once

#include <array>
#include <optional>

#include "base/units.h"

namespace derate {

// All that one source shows at a time: NVML's utilisation, or GPM.
using SourceReading = std::array<std::optional<double>, 9>;

class Standstill {
 public:
  // The clock, or what the GPU draws, is another now: a reading that is as before is of before.
  void moved();
  // Other work begins: nothing that was shown before counts, but how often the source repeats
  // itself.
  void begin();
  // One reading; an empty one says nothing new. True while the source stands still: it repeats what
  // it showed before the last move, for 8 s; or has repeated itself for longer than it ever does,
  // for 8 s where all of it rests at an end.
  bool add(Instant time, const SourceReading& reading);
  bool stands() const { return stands_; }
  // Whether it has ever shown anything.
  bool shows() const { return last_.has_value(); }

 private:
  std::optional<SourceReading> last_, before_;
  Instant since_{};     // it shows what it shows
  double repeats_ = 1;  // how often a reading is the one before it, of late
  int run_ = 0;         // of such readings
  bool stands_ = false;
};

}  // namespace derate
