// The safety rules that every decision passes, whatever its policy: envelope, heat, idle time, rate
// of lowering and stale data.
#pragma once

#include <optional>
#include <vector>

#include "core/actuation.h"
#include "core/envelope.h"
#include "core/envelope_bound.h"
#include "core/estimate.h"
#include "govern/own_rest.h"

namespace derate {

struct SafetyRules {
  Duration stale_after = std::chrono::seconds(1);   // older samples: hold
  Duration expire_after = std::chrono::seconds(5);  // older still: the GPU's own defaults
  Duration idle_after = std::chrono::seconds(1);    // no kernel for that long: park
  Duration park_memory_after{};  // of such a rest, the memory clock, too; zero: never
  Duration lower_every = std::chrono::seconds(1);  // lowering is rate-limited, raising never
  std::optional<Celsius> temperature_limit;        // default: 5 K below the GPU's slowdown
  Duration thermal_step_every = std::chrono::seconds(1);
};

// What the rules remember of one GPU.
class Safety {
 public:
  // `as_published` switches the idle and rate rules off; envelope, thermal and stale-data rules
  // stay.
  Safety(const SafetyRules& rules, const Envelope& envelope, bool as_published);

  // The GPU's own control stays within the envelope: at rest the clock may be left to it.
  void allow_own_rest() { own_rest_.emplace(); }
  // The driver does not lock its memory clock.
  void forbid_memory_rest() { memory_rest_.reset(); }
  // Its memory clock may be locked to that, its lowest, at rest.
  void allow_memory_rest(Megahertz lowest) {
    memory_rest_.emplace(lowest, rules_.park_memory_after);
  }

  // The bounds of the GPU's knobs from now on. A clock stays within the envelope, however low they
  // are; a power limit is bounded where the policy sets one.
  void bound(std::vector<EnvelopeBound> bounds) { bounds_ = std::move(bounds); }
  const std::vector<EnvelopeBound>& bounds() const { return bounds_; }
  // What is allowed now: the envelope, narrowed by the bounds of the clock, of which heat is one.
  const Envelope& envelope(const Estimate& estimate);

  // The decision as it may be carried out. `locked`: the clock locked now, if any.
  Clamped clamp(const Decision& decision, const Estimate& estimate,
                std::optional<Megahertz> locked);

 private:
  std::optional<Clamped> by_freshness(const Estimate& estimate);
  std::optional<Clamped> by_idleness(const Decision& decision, const Estimate& estimate);
  Clamped at_rest(const Estimate& estimate);
  void step_by_heat(const Estimate& estimate);
  void bound_power(Clamped& clamped, Instant now) const;
  std::optional<Clamped> by_bounds(const Decision& decision, std::optional<Megahertz> locked);
  std::optional<Clamped> by_rate(const Decision& decision, const Estimate& estimate,
                                 std::optional<Megahertz> locked);

  SafetyRules rules_;
  Envelope full_, now_;
  bool as_published_;
  std::vector<EnvelopeBound> bounds_;
  std::optional<Instant> thermal_step_at_;
  int thermal_steps_ = 0;        // how far heat lowers the top
  bool is_top_of_heat_ = false;  // no other bound is lower
  std::optional<OwnRest> own_rest_;
  std::optional<MemoryRest> memory_rest_;
  bool parked_ = false;
  bool waking_ = false;             // not idle any more, and the policy has set no clock since
  bool clock_is_the_gpus_ = false;  // the policy's last decision set a power limit
  std::optional<Instant> lowered_at_;
  std::optional<Decision> put_off_;  // a lowering that came too soon
};

}  // namespace derate
