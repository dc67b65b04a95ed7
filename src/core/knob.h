// The knobs of a GPU by name, as bounds and journals have them.
#pragma once

namespace derate {

inline constexpr const char* kClockLock = "clock_lock_mhz";
inline constexpr const char* kPowerLimit = "power_limit_watts";

}  // namespace derate
