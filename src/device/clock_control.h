// Turning a GPU's knobs. Only govern/actuator.cc, the back ends, apps/ and tests include this file
// (tests/tidy/layers.txt): who can change a GPU is a short list.
#pragma once

#include "base/result.h"
#include "base/units.h"
#include "core/gpu_settings.h"
#include "device/knob_control.h"

namespace derate {

class ClockControl : public KnobControl {
 public:
  // Locks the SM clock to [lowest, highest]; both must be supported clocks.
  // Errors: invalid_argument, no_permission, not_supported, gpu_lost.
  virtual Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) = 0;

  // Gives the SM clock back to the GPU's own control; allowed when nothing is locked.
  virtual Result<void> reset_sm_clock() = 0;

  // Locks the memory clock to [lowest, highest], both supported ones. Ampere and later, where the
  // board has several. Errors: as above.
  virtual Result<void> lock_memory_clock(Megahertz lowest, Megahertz highest);
  // Allowed when nothing is locked.
  virtual Result<void> reset_memory_clock();

  // Sets the power limit. Errors: invalid_argument outside the limits of the capability, naming
  // them; no_permission, not_supported (laptops), gpu_lost.
  virtual Result<void> set_power_limit(Watts limit) = 0;

  // What can be read back, now. A setting that the GPU lacks is empty. Errors: gpu_lost,
  // query_failed.
  virtual Result<GpuSettings> settings() = 0;

  // The same by the names of core/knob.h.
  std::span<const KnobInfo> knobs() const final { return gpu_knobs(); }
  Result<KnobValues> read_knobs() final;
  Result<void> write_knob(const KnobInfo& knob, const KnobValue& value) final;
  Result<void> reset_knob(const KnobInfo& knob) final;
};

}  // namespace derate
