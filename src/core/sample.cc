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

namespace {

template <class T>
bool is_there(const std::optional<T>& value) {
  return value.has_value();
}
bool is_there(const Activity& activity) { return activity != Activity{}; }

struct FieldRow {
  const char* name;
  bool (*has)(const Sample&);
  bool (*same)(const Sample&, const Sample&);
  void (*copy)(const Sample& from, Sample& to);
};

template <auto... members>
constexpr FieldRow row(const char* name) {
  return {name, [](const Sample& sample) { return (is_there(sample.*members) || ...); },
          [](const Sample& a, const Sample& b) { return ((a.*members == b.*members) && ...); },
          [](const Sample& from, Sample& to) { ((to.*members = from.*members), ...); }};
}

// By Field.
constexpr std::array<FieldRow, kFields> kFieldRows = {
    row<&Sample::gpu_utilisation, &Sample::memory_utilisation>("utilisation"),
    row<&Sample::sm_clock>("sm_clock"),
    row<&Sample::memory_clock>("memory_clock"),
    row<&Sample::power_usage>("power_usage"),
    row<&Sample::power_instant>("power_instant"),
    row<&Sample::power_average>("power_average"),
    row<&Sample::energy>("energy"),
    row<&Sample::temperature>("temperature"),
    row<&Sample::throttle_reasons>("throttle_reasons"),
    row<&Sample::activity>("activity"),
    row<&Sample::tenants>("tenants"),
};

const FieldRow& row_of(Field field) { return kFieldRows[static_cast<std::size_t>(field)]; }

}  // namespace

const char* to_string(Field field) { return row_of(field).name; }

bool has(const Sample& sample, Field field) { return row_of(field).has(sample); }

bool same(const Sample& a, const Sample& b, Field field) { return row_of(field).same(a, b); }

void copy(const Sample& from, Field field, Sample& to) { row_of(field).copy(from, to); }

FieldRead read_of(const Sample& sample, Field field) {
  for (const FieldRead& read : sample.read_apart)
    if (read.field == field) return read;
  return {field, sample.time, to_string(sample.source)};
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
      {throttle::kSwPowerCap, "power limit"},
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
