// The safety rules that every decision passes, whatever its policy: envelope, heat, idle time, rate
// of lowering and stale data.
#pragma once

#include <optional>

#include "core/actuation.h"
#include "core/envelope.h"
#include "core/estimate.h"

namespace derate {

struct SafetyRules {
  Duration stale_after = std::chrono::seconds(1);   // older samples: hold
  Duration expire_after = std::chrono::seconds(5);  // older still: the GPU's own defaults
  Duration idle_after = std::chrono::seconds(1);    // no kernel for that long: park
  Duration lower_every = std::chrono::seconds(1);   // lowering is rate-limited, raising never
  std::optional<Celsius> temperature_limit;         // default: 5 K below the GPU's slowdown
  Duration thermal_step_every = std::chrono::seconds(1);
};

// What the rules remember of one GPU.
class Safety {
 public:
  // `as_published` switches the idle and rate rules off; envelope, thermal and stale-data rules
  // stay.
  Safety(const SafetyRules& rules, const Envelope& envelope, bool as_published);

  // No clock above that from now on, but the envelope's lowest; empty: the envelope alone counts.
  void bound(std::optional<Megahertz> highest) { bound_ = highest; }
  // What is allowed now: the envelope, narrowed from above by the bound and while the GPU is too
  // hot.
  const Envelope& envelope(const Estimate& estimate);

  // The decision as it may be carried out. `locked`: the clock locked now, if any.
  Clamped clamp(const Decision& decision, const Estimate& estimate,
                std::optional<Megahertz> locked);

 private:
  std::optional<Clamped> by_freshness(const Estimate& estimate);
  std::optional<Clamped> by_idleness(const Decision& decision, const Estimate& estimate);
  void step_by_heat(const Estimate& estimate);
  std::optional<Clamped> by_top(const Decision& decision, std::optional<Megahertz> locked);
  std::optional<Clamped> by_rate(const Decision& decision, const Estimate& estimate,
                                 std::optional<Megahertz> locked);

  SafetyRules rules_;
  Envelope full_, now_;
  bool as_published_;
  std::optional<Instant> thermal_step_at_;
  int thermal_steps_ = 0;  // how far the top is lowered
  std::optional<Megahertz> bound_;
  bool parked_ = false;
  bool waking_ = false;             // not idle any more, and the policy has set no clock since
  bool clock_is_the_gpus_ = false;  // the policy's last decision set a power limit
  std::optional<Instant> lowered_at_;
  std::optional<Decision> put_off_;  // a lowering that came too soon
};

}  // namespace derate
