#include "core/driver_costs.h"

namespace derate {

const char* to_string(DriverCall call) {
  constexpr const char* kNames[kDriverCalls] = {"energy",      "activity", "processes",
                                                "utilisation", "sensors",  "modes"};
  return kNames[static_cast<std::size_t>(call)];
}

void DriverCosts::add(DriverCall call, Duration cpu) {
  constexpr std::int64_t kOfLate = 8;  // calls
  Sums& sums = sums_[static_cast<std::size_t>(call)];
  const std::int64_t now = cpu.count(), before = sums.mean_ns;
  sums.mean_ns = sums.calls == 0 ? now : before + (now - before) / kOfLate;
  sums.total_ns += now;
  ++sums.calls;
}

}  // namespace derate
