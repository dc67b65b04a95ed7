#include "device/sim/sim_chip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/suggest.h"
#include "base/text.h"
#include "core/chip_facts.h"

namespace derate {
namespace {

using namespace literals;
using std::chrono::milliseconds;

std::vector<Megahertz> clocks_every(double low, double step, int count) {
  std::vector<Megahertz> clocks;
  // Drivers list whole megahertz: the V100's 7.5 MHz grid reads 135, 142, 150, 157, ...
  for (int i = 0; i < count; ++i) clocks.emplace_back(static_cast<int>(low + step * i));
  return clocks;
}

constexpr Duration kUtilisationPeriod = milliseconds(167);
constexpr const char* kSensorPaper =
    "'Part-time power measurements' (SC'23/24, arXiv 2312.02741): update period and window";
constexpr const char* kLatencySource =
    "GEEPAFS paper: about 25 ms; the lognormal spread with p99 150 ms is assumed";

// Square roots of the fitted (V/Vmin)^2.
constexpr ClockPoint kVoltaVoltage[] = {
    {952, 1.0},     {1012, 1.0213}, {1080, 1.0488}, {1140, 1.0812}, {1207, 1.1274},
    {1275, 1.1675}, {1335, 1.2087}, {1402, 1.2641}, {1462, 1.3081}, {1530, 1.3539}};
// Of 743.75 mV, in the card's own 6.25 mV steps; each supported clock is met.
constexpr ClockPoint kA100Voltage[] = {
    {1110, 1.0},    {1125, 1.0168}, {1140, 1.0168}, {1155, 1.0252}, {1200, 1.0504},
    {1215, 1.0672}, {1245, 1.0840}, {1260, 1.1008}, {1275, 1.1008}, {1290, 1.1261},
    {1305, 1.1261}, {1320, 1.1513}, {1365, 1.1765}, {1380, 1.2017}, {1410, 1.2353}};
constexpr ClockPoint kA100Idle[] = {{210, 60.3},  {600, 61.2},  {1035, 64.5}, {1110, 65.1},
                                    {1200, 68.4}, {1305, 73.6}, {1410, 82.3}};
// The H100's curve between the H200's own two ends.
constexpr ClockPoint kH200Idle[] = {{345, 80},   {1005, 82},  {1110, 83},  {1200, 87}, {1410, 101},
                                    {1530, 110}, {1680, 118}, {1890, 127}, {1980, 127}};
constexpr ClockPoint kH100Idle[] = {{510, 72.1}, {1005, 74.3}, {1200, 77.9}, {1410, 90},
                                    {1530, 101}, {1680, 109},  {1890, 120}};

// Of steady kernels on an H200 whose clock nothing moved (docs/sensors.md).
constexpr const char* kHopperNoise =
    "own H200: field 186 0.9 %, 185 0.13 %, GPM 0.5 %, 4 of 1200 DRAM shares 19 to 51 % off, "
    "utilisation none";

SensorSpec hopper_sensors(Duration instant_window) {
  const PowerSensorSpec mean = {milliseconds(100), std::chrono::seconds(1), 0_W, 0.0013};
  return {.utilisation = {milliseconds(200), milliseconds(200), 0},
          .usage = mean,
          .instant = PowerSensorSpec{milliseconds(100), instant_window, 0_W, 0.009},
          .average = mean,
          .energy_refresh = milliseconds(100),
          .activity_window = milliseconds(100),
          .activity_noise = 0.005,
          .activity_glitches = 4.0 / 1200};
}

constexpr Provenance kV100Sources[] = {
    {"clocks", "GEEPAFS dvfs.c: 135..1530 MHz in 187 steps of 7.5"},
    {"voltage", "fitted to GPU-DVFS-Dataset (22 applications x 13 clocks)"},
    {"memory roof", "fitted to GPU-DVFS-Dataset below 900 MHz"},
    {"memory roof below 757 MHz", "the same curve, at most as much as the clock", true},
    {"idle power", "GEEPAFS paper: servers idle at 39 W, 48 to 67 W with the clock held"},
    {"thermal", "0.10 K/W in the range of an A100's 0.097; time constant, leakage assumed", true},
    {"switch latency", kLatencySource, true},
    {"power sensor", kSensorPaper},
    {"utilisation window",
     "GEEPAFS: its mean loss of 5.8 % rules out windows as long as its probes", true},
    {"utilisation noise", "0.5 points, assumed", true},
};
constexpr Provenance kA100Sources[] = {
    {"clocks", "NVML: 210..1410 MHz in steps of 15"},
    {"power limit", "the card of the public counters ran to 476 W: 500 W; a retail one has 400"},
    {"voltage, idle power", "energaizer-ispass26-artifact: measured on an A100 SXM4"},
    {"thermal", "33 degC at 135 W, 66 at 476 W: 0.097 K/W; time constant, leakage assumed", true},
    {"switch latency", kLatencySource, true},
    {"power sensor", "25 ms seen of every 100 ms (arXiv 2312.02741)"},
    {"utilisation noise", "0.5 points, assumed", true},
};
constexpr Provenance kH200Sources[] = {
    {"clocks", "NVML on an H200: 345..1980 MHz in steps of 15"},
    {"voltage up to 1410 MHz", "inferred from a DGEMM sweep (arXiv 2607.00819's repository)", true},
    {"voltage above 1410 MHz", "the board was at its limit there; as an H100's STMV power", true},
    {"idle power", "own H200: 80 W at 345 MHz, 127 W at 1980; between them the H100's shape", true},
    {"thermal", "assumed", true},
    {"switch latency", kLatencySource, true},
    {"sensors", "own H200: fields published every 100 ms, 185 a 1 s boxcar, utilisation 200 ms"},
    {"sensor noise", kHopperNoise},
};
constexpr Provenance kV100MaxQSources[] = {
    {"clocks, power limit", "GEEPAFS dvfs.c: 135..1440 MHz in 175 steps of 7.5, 163 W"},
    {"efficient clock", "GEEPAFS dvfs.c: 855 MHz"},
    {"idle power", "GEEPAFS demo log: idle GPUs by held clock, 42.9 to 67.5 W"},
    {"product name, lowest power limit", "assumed", true},
    {"voltage, memory roof, thermal, sensors", "assumed: the V100 SXM2's, same silicon", true},
    {"workloads", "assumed: the V100 SXM2's, memory slower by 877/810; held to 163 W", true},
    {"switch latency", kLatencySource, true},
};
constexpr Provenance kH100Sources[] = {
    {"clocks, power limit", "NVIDIA: 345..1980 MHz in steps of 15, 700 W"},
    {"idle power", "energaizer-ispass26-artifact: measured by held clock, 510 to 1890 MHz"},
    {"efficient clock", "inferred: idle power rises from about 1110 MHz", true},
    {"voltage", "inferred from five clocks of STMV on a 94 GB H100, power within 5 %", true},
    {"workloads", "assumed: the H200's, memory slower by 4.8/3.35; STMV is its own", true},
    {"power sensor", kSensorPaper},
    {"utilisation, GPM, sensor noise, thermal", "assumed: the H200's", true},
    {"switch latency", kLatencySource, true},
};
constexpr Provenance kRtx4070Sources[] = {
    {"highest clock", "the GEEPAFS fork's logs: 2700 MHz; 2475 was the most reached"},
    {"other clocks", "assumed: steps of 15 from 210, memory 8001 MHz", true},
    {"power limit", "the fork's report: 80 W, which its logs cross; fixed, assumed", true},
    {"efficient clock, voltage, idle power, thermal", "assumed", true},
    {"sensors", "the fork's logs: utilisation each second, power about twice a second"},
    {"switch latency", kLatencySource, true},
};

// Tables in functions: names of tests are made of them, before main.
std::span<const SimChip> measured_chips() {
  static const SimChip kChips[] = {
      {.name = "V100-SXM2",
       .product = "Tesla V100-SXM2-16GB",
       .architecture = Architecture::volta,
       .sm_clocks = clocks_every(135, 7.5, 187),
       .memory_clock = 877_MHz,
       .power_limits = {150_W, 300_W, 300_W},
       .flat_voltage_end = 952_MHz,
       .voltage = kVoltaVoltage,
       .idle_power = {{135, 39}, {952, 48}, {1530, 67}},
       .memory_roof = MemoryRoof{900_MHz, 1.75},
       .unused_clock = 135_MHz,
       .thermal = {0.10, std::chrono::seconds(25), 30_degC, 87_degC, 50_degC, 8_W, 0.015},
       .latency = {milliseconds(20), milliseconds(150)},
       .sensors = {.utilisation = {milliseconds(100), milliseconds(20), 0.5},
                   .usage = {milliseconds(20), milliseconds(10), 0.5_W},
                   .energy_refresh = milliseconds(20)},
       .provenance = kV100Sources},
      {.name = "A100-SXM4",
       .product = "NVIDIA A100-SXM4-80GB",
       .architecture = Architecture::ampere,
       .sm_clocks = clocks_every(210, 15, 81),
       .memory_clock = 1593_MHz,
       .power_limits = {100_W, 500_W, 500_W},
       .flat_voltage_end = 1110_MHz,
       .voltage = kA100Voltage,
       .idle_power = kA100Idle,
       .unused_clock = 210_MHz,
       .thermal = {0.097, std::chrono::seconds(25), 20_degC, 92_degC, 50_degC, 15_W, 0.015},
       .latency = {milliseconds(20), milliseconds(150)},
       .sensors = {.utilisation = {kUtilisationPeriod, kUtilisationPeriod, 0.5},
                   .usage = {milliseconds(100), milliseconds(25), 1.0_W},
                   .energy_refresh = milliseconds(100)},
       .provenance = kA100Sources},
      {.name = "H200",
       .product = "NVIDIA H200",
       .architecture = Architecture::hopper,
       .sm_clocks = clocks_every(345, 15, 110),
       .memory_clock = 3201_MHz,
       .power_limits = {200_W, 700_W, 700_W},
       .flat_voltage_end = 1005_MHz,
       .voltage = {{1005, 1.0}, {1410, 1.26}, {1980, 1.50}},
       .idle_power = kH200Idle,
       .unused_clock = 345_MHz,
       .thermal = {0.06, std::chrono::seconds(30), 30_degC, 87_degC, 50_degC, 20_W, 0.015},
       .latency = {milliseconds(15), milliseconds(150)},
       .sensors = hopper_sensors(milliseconds(20)),
       .provenance = kH200Sources}};
  return kChips;
}
std::span<const SimChip> inferred_chips() {
  static const SimChip kChips[] = {
      {.name = "V100-MaxQ",
       .product = "Tesla V100-MaxQ",
       .architecture = Architecture::volta,
       .sm_clocks = clocks_every(135, 7.5, 175),
       .memory_clock = 810_MHz,
       .power_limits = {100_W, 163_W, 163_W},
       .flat_voltage_end = 855_MHz,
       .voltage = kVoltaVoltage,
       .idle_power = {{135, 42.9}, {855, 48.3}, {1050, 52.4}, {1245, 58.6}, {1440, 67.5}},
       .memory_roof = MemoryRoof{900_MHz, 1.75},
       .kin = Kin{"V100-SXM2", 877.0 / 810},
       .unused_clock = 135_MHz,
       .thermal = {0.10, std::chrono::seconds(25), 30_degC, 87_degC, 50_degC, 8_W, 0.015},
       .latency = {milliseconds(20), milliseconds(150)},
       .sensors = {.utilisation = {kUtilisationPeriod, kUtilisationPeriod, 0.5},
                   .usage = {milliseconds(20), milliseconds(10), 0.5_W},
                   .energy_refresh = milliseconds(20)},
       .provenance = kV100MaxQSources},
      {.name = "H100-SXM5",
       .product = "NVIDIA H100 80GB HBM3",
       .architecture = Architecture::hopper,
       .sm_clocks = clocks_every(345, 15, 110),
       .memory_clock = 2619_MHz,
       .power_limits = {200_W, 700_W, 700_W},
       .flat_voltage_end = 1110_MHz,
       .voltage = {{1110, 1.0}, {1980, 1.50}},
       .idle_power = kH100Idle,
       // NVIDIA's data sheets: 4.8 against 3.35 TB/s.
       .kin = Kin{"H200", 4.8 / 3.35},
       .unused_clock = 345_MHz,
       .thermal = {0.06, std::chrono::seconds(30), 30_degC, 87_degC, 50_degC, 20_W, 0.015},
       .latency = {milliseconds(15), milliseconds(150)},
       .sensors = hopper_sensors(milliseconds(25)),
       .provenance = kH100Sources},
      {.name = "RTX4070-Laptop",
       .product = "NVIDIA GeForce RTX 4070 Laptop GPU",
       .architecture = Architecture::ada,
       .sm_clocks = clocks_every(210, 15, 167),
       .memory_clock = 8001_MHz,
       .power_limits = {80_W, 80_W, 80_W},
       .power_limit_fixed = true,
       .flat_voltage_end = 1500_MHz,
       .voltage = {{1500, 1.0}, {2700, 1.50}},
       .idle_power = {{210, 8}, {1500, 12}, {2700, 22}},
       .unused_clock = 210_MHz,
       .thermal = {0.55, std::chrono::seconds(20), 35_degC, 87_degC, 50_degC, 3_W, 0.015},
       .latency = {milliseconds(20), milliseconds(150)},
       .sensors = {.utilisation = {std::chrono::seconds(1), std::chrono::seconds(1), 0.5},
                   .usage = {milliseconds(500), std::chrono::seconds(1), 0.5_W},
                   .energy_refresh = milliseconds(100)},
       .provenance = kRtx4070Sources}};
  return kChips;
}

}  // namespace

double ClockCurve::at(Megahertz clock) const {
  const double f = clock.value();
  if (f <= points_.front().first) return points_.front().second;
  if (f >= points_.back().first) return points_.back().second;
  const auto above = std::upper_bound(points_.begin(), points_.end(), f,
                                      [](double x, const auto& point) { return x < point.first; });
  const auto below = above - 1;
  const double share = (f - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

double MemoryRoof::slowdown(Megahertz clock) const {
  return std::pow(std::max(1.0, full_from / clock), exponent);
}

std::span<const SimChip> sim_chips() {
  static const std::vector<SimChip> all = [] {
    std::vector<SimChip> out(measured_chips().begin(), measured_chips().end());
    out.insert(out.end(), inferred_chips().begin(), inferred_chips().end());
    return out;
  }();
  return all;
}

Result<const SimChip*> find_sim_chip(std::string_view name) {
  // Of the chips that the name is a part of: all, and those that stand for their silicon.
  std::vector<const SimChip*> fitting, heads;
  std::string known;
  const std::string key = to_lower(name);
  for (const SimChip& chip : sim_chips()) {
    if (to_lower(chip.name) == key) return &chip;
    if (!key.empty() && to_lower(chip.name).find(key) != std::string::npos) {
      fitting.push_back(&chip);
      if (!chip.kin) heads.push_back(&chip);
    }
    known += known.empty() ? "" : ", ";
    known += chip.name;
  }
  if (fitting.size() == 1) return fitting.front();
  if (heads.size() == 1) return heads.front();
  return Error{Errc::not_found, fmt::format("no simulated chip '{}'{}", name,
                                            choices(name, "; there are: ", known))};
}

SimChip with_reference_sensors(SimChip chip) {
  chip.sensors.utilisation = {milliseconds(10), kUtilisationPeriod, 1.0};
  chip.latency = {milliseconds(25), milliseconds(25)};
  return chip;
}

Capability sim_capability(const SimChip& chip, int index) {
  Capability out;
  out.id = {index, fmt::format("{}{:012x}", kSimulatedUuid, index),
            fmt::format("00000000:{:02X}:00.0", 0x10 + index), chip.product};
  out.architecture = chip.architecture;
  out.sm_clocks = chip.sm_clocks;
  out.memory_clocks = {chip.memory_clock};
  if (!chip.power_limit_fixed) out.power_limits = chip.power_limits;
  out.slowdown_temperature = chip.thermal.slowdown;
  out.flat_voltage_end = chip.flat_voltage_end;
  out.energy_counter = true;
  out.instant_power = chip.sensors.instant.has_value();
  out.averaged_power = chip.sensors.average.has_value();
  out.activity_counters = chip.sensors.activity_window.has_value();
  out.process_list = true;
  return out;
}

}  // namespace derate
