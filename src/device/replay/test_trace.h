// What the tests of this folder share: a capability, samples of random shape.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "device/replay/trace_format.h"

namespace derate {

inline Capability test_capability() {
  Capability c;
  c.id = {2, "GPU-1234", "00000000:65:00.0", "NVIDIA H200"};
  c.architecture = Architecture::hopper;
  c.sm_clocks = {Megahertz(345), Megahertz(952.5), Megahertz(1980)};
  c.memory_clocks = {Megahertz(3201)};
  c.power_limits = PowerLimits{Watts(200), Watts(700), Watts(700)};
  c.slowdown_temperature = Celsius(87);
  c.flat_voltage_end = Megahertz(1005);
  c.energy_counter = c.instant_power = c.averaged_power = c.activity_counters = true;
  return c;
}

inline std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::filesystem::path repo_root() {
  return std::filesystem::path(__FILE__).parent_path() / "../../..";
}

// A sample with each field missing or at a multiple of its column's resolution, filled through the
// columns' own reader, so that no field can be forgotten.
inline Sample random_sample(Instant time) {
  Sample sample;
  sample.time = time;
  sample.source = SampleSource::replayed;
  for (const Column& column : trace_columns()) {
    const int kind = *rc::gen::inRange(0, 4);
    std::string cell;  // 0: missing
    if (std::string_view(column.name) == "throttle_bits") {
      if (kind > 0) cell = std::to_string(*rc::gen::arbitrary<std::uint64_t>());
    } else if (std::string_view(column.name) == "tenants") {
      if (kind > 0) cell = std::to_string(*rc::gen::inRange(0, 1'000'001));
    } else if (kind > 0) {
      const std::int64_t steps = kind == 1 ? *rc::gen::inRange<std::int64_t>(-200, 200)
                                 : kind == 2
                                     ? *rc::gen::inRange<std::int64_t>(0, 1'000'000)
                                     : *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 50);
      const auto unit = static_cast<std::int64_t>(std::pow(10, column.decimals));
      const std::int64_t whole = std::abs(steps) / unit, part = std::abs(steps) % unit;
      cell = (steps < 0 ? "-" : "") + std::to_string(whole);
      std::string digits = std::to_string(part);
      digits.insert(0,
                    static_cast<std::size_t>(column.decimals) >= digits.size()
                        ? static_cast<std::size_t>(column.decimals) - digits.size()
                        : 0,
                    '0');
      if (column.decimals > 0) cell += "." + digits;
    }
    RC_ASSERT(column.take(column, cell, sample));
  }
  return sample;
}

inline std::vector<Sample> random_samples() {
  std::vector<Sample> samples;
  Instant time{};
  const int count = *rc::gen::inRange(1, 20);
  for (int i = 0; i < count; ++i) {
    // Often the same sample again: dittos.
    const bool again = i > 0 && *rc::gen::inRange(0, 2) == 0;
    samples.push_back(again ? samples.back() : random_sample(time));
    samples.back().time = time;
    time += std::chrono::microseconds(*rc::gen::inRange<std::int64_t>(0, 10'000'000));
  }
  return samples;
}

}  // namespace derate
