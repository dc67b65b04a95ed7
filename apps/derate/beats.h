// Heartbeats sent to the daemon from within the command, and the promises of its environment.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "signal/heartbeats.h"

namespace derate::cli {

// To the first daemon that listens and may be believed; one that may not is told of once on
// standard error. Errors: not_found when none does; those of send_beat().
Result<void> send_beat_message(const BeatMessage& message);

// What this environment says of its work (DERATE_DELTA, SLURM_JOB_ID), for a daemon that may not
// read it: of process `pid`, 0 being this one. Nothing is said where neither is set. Errors: as
// send_beat_message().
Result<void> send_environment(std::int64_t pid);

// The same at the first call and each minute: a daemon may have been started anew.
class EnvironmentSender {
 public:
  void send_if_due(const Clock& clock);

 private:
  std::optional<Instant> next_;
};

}  // namespace derate::cli
