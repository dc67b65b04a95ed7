// Turning a GPU's knobs. Only govern/actuator.cc, the back ends, apps/ and tests include this file
// (tests/tidy/layers.txt): who can change a GPU is a short list.
#pragma once

#include "base/result.h"
#include "base/units.h"

namespace derate {

class ClockControl {
 public:
  virtual ~ClockControl() = default;

  // Locks the SM clock to [lowest, highest]; both must be supported clocks.
  // Errors: invalid_argument, no_permission, not_supported, gpu_lost.
  virtual Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) = 0;

  // Gives the SM clock back to the GPU's own control; allowed when nothing is locked.
  virtual Result<void> reset_sm_clock() = 0;
};

}  // namespace derate
