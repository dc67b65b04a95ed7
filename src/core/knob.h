// The knobs of a domain: one row for each setting that journals and restorers handle.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/domain.h"

namespace derate {

// A setting in its knob's unit: one number, or a range.
struct KnobValue {
  double lowest = 0, highest = 0;  // equal: one number

  bool operator==(const KnobValue&) const = default;
};
inline KnobValue one_value(double value) { return {value, value}; }

// By name of the knob.
using KnobValues = std::map<std::string, KnobValue, std::less<>>;

struct KnobInfo {
  // What a domain is restored to.
  enum class Restore : std::uint8_t {
    found,       // what was read before the first write
    configured,  // what the configuration says was there; if it says nothing the knob is reset
  };
  const char* name;   // in journals, with its unit: "power_limit_watts"
  const char* words;  // in sentences and in the audit log: "power limit"
  const char* unit;   // after a number: "W"
  bool readable;      // it is read before the first write, and read back after it was restored
  Restore restore;
  double most;       // that a journal may name; the least is above 0
  double tolerance;  // drivers round: by less than this the knob may read otherwise than it was set
};

inline constexpr const char* kClockLock = "clock_lock_mhz";
inline constexpr const char* kMemoryLock = "memory_lock_mhz";
inline constexpr const char* kPowerLimit = "power_limit_watts";
inline constexpr const char* kApplicationClock = "application_sm_clock_mhz";
inline constexpr const char* kApplicationMemoryClock = "application_memory_clock_mhz";

// In the order in which knobs are written and restored.
std::span<const KnobInfo> gpu_knobs();
// Those of domains of that kind; none where this program does not know it.
std::span<const KnobInfo> knobs_of(std::string_view kind);
// Null: there is none of that name.
const KnobInfo* find_knob(std::span<const KnobInfo> knobs, std::string_view name);

}  // namespace derate
