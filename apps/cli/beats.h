// Saying beats from within the command.
#pragma once

#include "base/result.h"
#include "govern/beat_message.h"

namespace derate::cli {

// To the first daemon that listens. Errors: not_found when none does; those of send_beat().
Result<void> say(const BeatMessage& message);

}  // namespace derate::cli
