#include "core/sample.h"

namespace derate {

const char* to_string(SampleSource source) {
  switch (source) {
    case SampleSource::simulated:
      return "simulated";
    case SampleSource::nvml:
      return "nvml";
    case SampleSource::replayed:
      return "replayed";
  }
  return "unknown";
}

std::span<const ActivityShare> activity_shares() {
  static constexpr ActivityShare kShares[] = {{"graphics", &Activity::graphics},
                                              {"sm", &Activity::sm},
                                              {"occupancy", &Activity::occupancy},
                                              {"integer", &Activity::integer},
                                              {"tensor", &Activity::tensor},
                                              {"dram", &Activity::dram},
                                              {"fp64", &Activity::fp64},
                                              {"fp32", &Activity::fp32},
                                              {"fp16", &Activity::fp16}};
  return kShares;
}

std::span<const ThrottleReason, kThrottleReasons> throttle_reasons() {
  static constexpr ThrottleReason kReasons[] = {
      {throttle::kGpuIdle, "idle"},
      {throttle::kApplicationsClocksSetting, "application clocks"},
      {throttle::kSwPowerCap, "power cap"},
      {throttle::kHwSlowdown, "hardware slowdown"},
      {throttle::kSyncBoost, "sync boost"},
      {throttle::kSwThermalSlowdown, "thermal (software)"},
      {throttle::kHwThermalSlowdown, "thermal (hardware)"},
      {throttle::kHwPowerBrakeSlowdown, "power brake"},
      {throttle::kDisplayClockSetting, "display clock"},
  };
  return kReasons;
}

std::string describe_throttle(std::uint64_t bits) {
  std::string out;
  for (const auto& [bit, name] : throttle_reasons()) {
    if ((bits & bit) == 0) continue;
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out.empty() ? "none" : out;
}

}  // namespace derate
