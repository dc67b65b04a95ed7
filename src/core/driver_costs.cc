#include "core/driver_costs.h"

#include <algorithm>

namespace derate {

const char* to_string(DriverCall call) {
  constexpr const char* kNames[kDriverCalls] = {"energy",  "activity", "processes", "utilisation",
                                                "sensors", "modes",    "card"};
  return kNames[static_cast<std::size_t>(call)];
}

Duration survey_counter_every(Duration cost, bool works) {
  constexpr double kShare = 0.0005, kIdleShare = 0.0002;  // of a core
  constexpr std::chrono::seconds kMost(10), kIdleMost(30);
  if (cost < kDearCall) return {};
  return works ? std::min<Duration>(from_seconds(seconds(cost) / kShare), kMost)
               : std::min<Duration>(from_seconds(seconds(cost) / kIdleShare), kIdleMost);
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
