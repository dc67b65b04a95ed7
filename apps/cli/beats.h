// Saying beats from within the command.
#pragma once

#include "base/result.h"
#include "govern/beat_message.h"

namespace derate::cli {

// To the first daemon that listens and may be believed; one that may not is told of once on
// standard error. Errors: not_found when none does; those of send_beat().
Result<void> say(const BeatMessage& message);

}  // namespace derate::cli
