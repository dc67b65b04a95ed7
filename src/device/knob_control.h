// Reading and writing the knobs of one domain by name, as in journals: all that a restorer needs.
// tests/tidy/layers.txt limits the files that may include this one, as for device/clock_control.h.
#pragma once

#include <span>

#include "base/result.h"
#include "core/knob.h"

namespace derate {

class KnobControl {
 public:
  virtual ~KnobControl() = default;

  // Its rows, in the order in which they are written and restored.
  virtual std::span<const KnobInfo> knobs() const = 0;
  // Of those that can be read what they are now; one that the domain lacks is not among them.
  // Errors: those of the device.
  virtual Result<KnobValues> read_knobs() = 0;
  // Errors: those of the device; not_supported for a knob that it does not write.
  virtual Result<void> write_knob(const KnobInfo& knob, const KnobValue& value) = 0;
  // Gives the knob back to the device's own control. Errors: as write_knob().
  virtual Result<void> reset_knob(const KnobInfo& knob) = 0;
};

}  // namespace derate
