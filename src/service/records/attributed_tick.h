// A tick of attribution as services hand it on.
#pragma once

#include "attrib/gpu_attribution.h"
#include "base/clock.h"
#include "telemetry/usage_pending.h"

namespace derate {

// A tick of one GPU as it is split, and what was saved on that GPU since the one before: it is
// divided as the tick's energy is.
struct AttributedTick {
  const GpuAttribution& gpu;
  const GpuAttribution::Taken& tick;
  WallTime end{};
  const UsageSavings& savings;
};

}  // namespace derate
