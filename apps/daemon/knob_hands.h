// Joins jobs that recur to the GPUs that are tuned for them: what the desk asks, the worker does.
#pragma once

#include "apps/common/tune_desk.h"
#include "apps/common/tuning.h"
#include "base/clock.h"

namespace derate::cli {

// `gpus` and `clock` outlive it.
KnobHands knob_hands(TunedGpus& gpus, Clock& clock);

}  // namespace derate::cli
