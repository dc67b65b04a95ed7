// The outcome of a policy's decision: the clamp by the governor's rules, and the write to the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "core/decision.h"

namespace derate {

// The decision after envelope, idle, thermal, rate and stale-data rules. `rule` says which of them
// changed it.
struct Clamped {
  enum class Rule : std::uint8_t {
    none,
    envelope,
    idle,
    wake,
    thermal,
    rate_limit,
    stale,
    expired
  };
  Decision decision;
  Rule rule = Rule::none;

  bool operator==(const Clamped&) const = default;
};

inline constexpr std::size_t kClampedRules = 8;

struct Actuation {
  enum class Outcome : std::uint8_t {
    nothing,  // no write was needed
    shadow,   // dry run: would have been written
    written,
    released,
    failed,   // the device or the journal refused, or the write had no effect: `error` says why
    waiting,  // a write failed a moment ago and is tried again later; `error` says why
    yielded,  // another tool changed what was set, and the rule is to leave it: `error` says what
  };
  Outcome outcome = Outcome::nothing;
  std::optional<Megahertz>
      locked;         // the lock in force after this tick (the asked-for one in a dry run)
  std::string error;  // also of a change by another tool that stands, with any outcome
  std::optional<Watts> power_limit = {};   // as set by us
  std::optional<Megahertz> before = {};    // of a write: the lock that it replaced
  std::optional<Watts> power_before = {};  // of a write to the power limit: what it replaced
  // The lock of the memory clock in force, as set by us.
  std::optional<Megahertz> memory_lock = {};
  int drifts = 0;  // how often another tool changed what we set, so far

  bool operator==(const Actuation&) const = default;
};

const char* to_string(Clamped::Rule rule);
const char* to_string(Actuation::Outcome outcome);

}  // namespace derate
