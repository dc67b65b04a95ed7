// What the tests of simulated GPUs share: a chip without surprises, work made by hand, a folder for
// tables.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/test_folder.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_workload.h"

namespace derate {

inline const SimChip& chip_named(std::string_view name) {
  const auto chip = find_sim_chip(name);
  CHECK(chip.ok());
  return **chip;
}

// The chips of the catalogue that work runs on without tables of the user's.
inline const std::vector<SimChip>& modelled_chips() {
  static const std::vector<SimChip> chips = [] {
    std::vector<SimChip> out;
    for (const SimChip& chip : sim_chips())
      if (chip.voltage_known) out.push_back(chip);
    return out;
  }();
  return chips;
}

inline std::vector<Workload> all_workloads(const SimChip& chip) {
  auto workloads = built_in_workloads(chip);
  CHECK(workloads.ok());
  return *std::move(workloads);
}

inline Workload workload_named(const SimChip& chip, std::string_view name) {
  auto workload = find_workload(chip, name);
  CHECK(workload.ok());
  return *std::move(workload);
}

// The chip without noise, switch latency and leakage: what is left can be computed by hand.
inline SimChip plain(SimChip chip) {
  chip.latency = {};
  chip.thermal.leakage = Watts(0);
  chip.sensors.utilisation.noise_points = 0;
  const auto silence = [](PowerSensorSpec& spec) {
    spec.noise = Watts(0);
    spec.noise_share = 0;
  };
  silence(chip.sensors.usage);
  if (chip.sensors.instant) silence(*chip.sensors.instant);
  if (chip.sensors.average) silence(*chip.sensors.average);
  chip.sensors.activity_noise = chip.sensors.activity_glitches = 0;
  return chip;
}
inline SimChip plain_chip() { return plain(chip_named("V100-SXM2")); }

// A phase whose every clock is `point`, but for the rate: f / fmax when it follows the clock.
inline Phase phase_of(const SimChip& chip, OperatingPoint point, bool follows_clock = false) {
  Phase phase;
  for (const Megahertz clock : chip.sm_clocks) {
    phase.points.push_back(point);
    if (follows_clock) phase.points.back().rate *= clock / chip.sm_clocks.back();
  }
  return phase;
}

inline OperatingPoint point_of(double rate, double watts) {
  OperatingPoint point;
  point.rate = rate;
  point.power = Watts(watts);
  return point;
}

inline Workload work_of(const SimChip& chip, Phase phase) {
  Workload workload;
  workload.name = "by hand";
  workload.chip = chip.name;
  workload.phases.push_back(std::move(phase));
  return workload;
}

// Rate 1 and the same power at every clock.
inline Workload steady_work(const SimChip& chip, double watts) {
  return work_of(chip, phase_of(chip, point_of(1, watts)));
}

// A folder of tables that goes with the test.
struct TableFolder : Folder {
  void write(const char* name, std::string_view text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }
};

}  // namespace derate
