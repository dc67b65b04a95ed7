// Joins jobs that recur to the GPUs that are tuned for them: what the desk asks, the worker does.
#pragma once

#include "base/clock.h"
#include "govern/fleet/tuned_gpus.h"
#include "service/tune_service.h"

namespace derate::cli {

// `gpus` and `clock` outlive it.
KnobHands knob_hands(TunedGpus& gpus, Clock& clock);

}  // namespace derate::cli
