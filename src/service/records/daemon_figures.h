// Resources that this process itself takes: CPU time, resident memory and open descriptors, with
// its start.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace derate {

// A field that could not be read is empty.
struct DaemonFigures {
  std::optional<Duration> cpu;  // of all its threads, in user and system mode
  std::optional<std::uint64_t> resident_bytes;
  std::optional<std::uint64_t> open_descriptors, most_descriptors;
  std::optional<WallTime> started;
};

class DaemonMeter {
 public:
  static constexpr Duration kEvery = std::chrono::seconds(10);

  explicit DaemonMeter(const Clock& clock) : clock_(clock), started_(clock.wall_now()) {}
  // CPU time is read at each call, the others once in kEvery at most.
  const DaemonFigures& figures();

 private:
  const Clock& clock_;
  WallTime started_;
  std::optional<Instant> read_;
  DaemonFigures figures_;
};

}  // namespace derate
