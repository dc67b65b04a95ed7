// The only place that turns a GPU's knobs. It writes what differs from what is in force, tries
// again what failed, and gives the clock back when it goes.
#pragma once

#include <optional>

#include "base/result.h"
#include "core/actuation.h"
#include "core/decision.h"

namespace derate {

class ClockControl;

class Actuator {
 public:
  // Without a control it is a shadow (dry run): it reports what it would write and writes nothing.
  explicit Actuator(ClockControl* control) : control_(control) {}
  Actuator(const Actuator&) = delete;
  Actuator& operator=(const Actuator&) = delete;
  Actuator(Actuator&& other) noexcept;
  // Restores; an error there has nobody left to hear it, so call restore() first where one listens.
  ~Actuator();

  Actuation apply(const Decision& decision);

  // The clock locked now, or that would be in a dry run.
  std::optional<Megahertz> locked() const { return locked_; }

  // Gives the clock back if this actuator ever locked it. Errors: those of the device.
  Result<void> restore();

 private:
  Actuation write(std::optional<Megahertz> clock);

  ClockControl* control_;
  bool touched_ = false;             // a write was tried: the GPU may not be as found
  std::optional<Megahertz> target_;  // what the decisions so far ask for; empty: released
  std::optional<Megahertz> locked_;
};

}  // namespace derate
