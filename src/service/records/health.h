// The health of the service: /livez reports whether the loop runs, /readyz whether the GPUs are
// open and their readings are up to date.
#pragma once

#include <string>

#include "service/records/snapshot.h"

namespace derate {

struct Health {
  bool good = false;
  std::string reason;  // a sentence; where it is good, what is known of GPUs that are lost
};

// A loop whose last round is older does not turn: its guard ends it after 10 s.
inline constexpr Duration kLiveFor = std::chrono::seconds(5);

// The loop turns.
Health livez(const Snapshot& snapshot, Instant now);
// The loop turns, the GPUs are open and each that is not lost was read of late. Lost GPUs are
// named; they are a failure when all are.
Health readyz(const Snapshot& snapshot, Instant now);

}  // namespace derate
