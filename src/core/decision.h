// The decision of a policy and the reason for it, in a form that costs nothing to make and one
// sentence to read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"

namespace derate {

// A sentence with up to four numbers, put together only when somebody reads it. `format` is an fmt
// format string with static lifetime: "model bound {0:.0f} MHz, cap {1:.0f} MHz".
struct Reason {
  const char* format = "";
  std::array<double, 4> values{};
};

// The sentence, its numbers filled in.
std::string describe(const Reason& reason);

struct Decision {
  enum class Kind : std::uint8_t {
    hold,     // leave the clock as it is, write nothing
    set,      // lock the SM clock at `clock`
    cap,      // set the power limit to `power_limit`; the clock is the GPU's own
    release,  // give everything back to the GPU's own control
    unlock,   // give the clock back, and nothing else
  };
  Kind kind = Kind::hold;
  Megahertz clock{};    // only for set
  Watts power_limit{};  // only for cap
  // The policy's own belief of performance at the present choice, 1 = at the maximum clock.
  std::optional<Fraction> expected_performance;
  Reason reason;
  bool probing = false;  // the clock is set to learn from it, not because it is believed best
  // The memory clock is locked to its lowest, too. A decision without this that is no hold gives it
  // back.
  bool parks_memory = false;
  // The GPU is not parked though it is idle: the policy knows when its work comes back.
  bool stays_awake = false;

  static Decision hold(Reason why) { return {Kind::hold, {}, {}, {}, why}; }
  static Decision set(Megahertz clock, Reason why) { return {Kind::set, clock, {}, {}, why}; }
  static Decision cap(Watts limit, Reason why) { return {Kind::cap, {}, limit, {}, why}; }
  static Decision release(Reason why) { return {Kind::release, {}, {}, {}, why}; }
  static Decision unlock(Reason why) { return {Kind::unlock, {}, {}, {}, why}; }
};

bool operator==(const Reason& a, const Reason& b);
bool operator==(const Decision& a, const Decision& b);

const char* to_string(Decision::Kind kind);

}  // namespace derate
