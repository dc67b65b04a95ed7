// About the history itself, for metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/units.h"

namespace derate {

struct HistoryFigures {
  std::int64_t bytes = 0;           // of the file, as of the last time that it was tidied
  std::size_t waiting_seconds = 0;  // that are not written yet
  std::uint64_t given_up = 0;       // seconds, events and decisions, where nothing can be written
  bool failing = false;             // the last write failed
  std::uint64_t failed_reads = 0;   // of those who asked
  std::optional<WallTime> tenants_seconds_from;  // older ones went for the sake of the size
};

}  // namespace derate
