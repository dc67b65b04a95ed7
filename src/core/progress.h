// Progress of the work on a GPU, as a reported count. If no progress is reported, the GPU's
// counters replace it (signal/counters.h).
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace derate {

enum class ProgressSource : std::uint8_t {
  counters,    // of the GPU: nobody counts the work
  heartbeats,  // of the application: steps, tokens, requests
  launches,    // of kernels that the application launches (model/launch_phases.h)
};
// "counters", "heartbeats", "kernel launches"
const char* to_string(ProgressSource source);

struct Progress {
  ProgressSource source = ProgressSource::heartbeats;
  int unit = 0;  // what is counted: of launches, their phase; 0: the application's own unit
  std::uint64_t run = 0;  // another number: another application or unit, or a count begun anew
  double done = 0;        // since the run began; never falls
  Instant time{};         // when that was so, on the governor's clock
  // Of the rate, relative. Of launches: how far windows of this work are from its kernels' usual
  // shares, on average. 0: the application's count is taken as it is.
  double rate_uncertainty = 0;
  // Another number: another process counts. 0: it is not known which.
  std::uint64_t process = 0;

  bool operator==(const Progress&) const = default;
};

inline ProgressSource source_of(const std::optional<Progress>& progress) {
  return progress ? progress->source : ProgressSource::counters;
}

}  // namespace derate
