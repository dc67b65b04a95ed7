#include "device/sim/sim_chip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/suggest.h"
#include "base/text.h"
#include "config/chip_file.h"
#include "core/chip_facts.h"

namespace derate {

// data/chips/*.toml, put into the program at build time: a file's name, its text, and so on, to a
// null.
extern const char* const kBuiltInChips[];

namespace {

using std::chrono::milliseconds;

// Of the published replay.
constexpr Duration kReferenceWindow = milliseconds(167);

PowerSensorSpec power_sensor(const ChipPowerSensor& file) {
  return {.refresh = from_seconds(file.refresh_s),
          .window = from_seconds(file.window_s),
          .noise = Watts(file.noise_w),
          .noise_share = file.noise_share,
          .step = Watts(file.step_w),
          .lag = from_seconds(file.lag_s)};
}

SensorSpec sensors_of(const ChipSensors& file) {
  SensorSpec out;
  const auto& utilisation = file.utilisation;
  out.utilisation = {.refresh = from_seconds(utilisation.refresh_s),
                     .window = from_seconds(utilisation.window_s),
                     .noise_points = utilisation.noise_points,
                     .step_points = utilisation.step_points,
                     .lag = from_seconds(utilisation.lag_s),
                     .gpu = file.has("gpu_utilisation"),
                     .memory = file.has("memory_utilisation")};
  out.usage = power_sensor(file.power_usage);
  if (file.has("power_instant")) out.instant = power_sensor(file.power_instant);
  if (file.has("power_average")) out.average = power_sensor(file.power_average);
  out.energy_counter = file.has("energy");
  out.energy_refresh = from_seconds(file.energy.refresh_s);
  out.energy_lag = from_seconds(file.energy.lag_s);
  if (file.energy.sight_s) out.energy_sight = from_seconds(*file.energy.sight_s);
  if (file.has("activity")) {
    out.activity_window = from_seconds(file.activity.window_s);
    out.activity_noise = file.activity.noise;
    out.activity_glitches = file.activity.glitches;
  }
  return out;
}

ThermalSpec thermal_of(const ChipFile& file) {
  const auto& t = file.thermal;
  return {.kelvin_per_watt = t.kelvin_per_watt,
          .time_constant = from_seconds(t.time_constant_s),
          .ambient = Celsius(t.ambient_celsius),
          .slowdown = Celsius(t.slowdown_celsius),
          .reference = Celsius(t.reference_celsius),
          .leakage = Watts(t.leakage_w),
          .leakage_per_kelvin = t.leakage_per_kelvin};
}

// V(f) / Vmin.
ClockCurve voltage_of(const ChipFile& file) {
  if (file.voltage.unknown) return {{0, 1}};
  std::vector<ClockPoint> points = file.voltage.points;
  const double least = points.front().second;
  for (auto& [clock, volts] : points) volts /= least;
  return ClockCurve(std::move(points));
}

// An idle board's power where it is not known, of its power limit.
constexpr double kAssumedIdleShare = 0.15;

ClockCurve idle_power_of(const ChipFile& file) {
  if (file.idle.unknown) return {{0, kAssumedIdleShare * *file.power.default_w}};
  return ClockCurve(file.idle.points);
}

DriverSpec driver_of(const ChipFile& file) {
  using Application = DriverSpec::ApplicationClocks;
  const ChipDriver& driver = file.driver;
  const Architecture architecture = *architecture_of(file.architecture);
  return {.application_clocks = driver.application_clocks == "set"      ? Application::set
                                : driver.application_clocks == "absent" ? Application::absent
                                                                        : Application::deprecated,
          // A chip whose file names no architecture has what can be had.
          .memory_lock =
              driver.memory_lock == "offered" ||
              (driver.memory_lock == "by_architecture" &&
               (architecture == Architecture::unknown || architecture >= Architecture::ampere)),
          .old_process_utilisation = driver.process_utilisation == "old",
          .clock_offsets = driver.clock_offsets,
          .power_mizer = driver.power_mizer,
          .power_profiles = driver.power_profiles,
          .display = driver.display};
}

std::vector<Megahertz> megahertz(const std::vector<double>& clocks) {
  std::vector<Megahertz> out;
  for (const double clock : clocks) out.emplace_back(clock);
  return out;
}

// The highest supported clock up to there.
Megahertz supported_below(const std::vector<Megahertz>& clocks, double mhz) {
  const auto above = std::upper_bound(clocks.begin(), clocks.end(), Megahertz(mhz));
  return above == clocks.begin() ? *above : *(above - 1);
}

void set_flat_voltage_end(SimChip& chip, const ChipFile& file) {
  constexpr double kAssumed = 0.75;  // of the highest clock, as policies do without it
  chip.flat_voltage_end_known = file.efficient_mhz || !file.voltage.unknown;
  if (file.efficient_mhz)
    chip.flat_voltage_end = Megahertz(*file.efficient_mhz);
  else
    chip.flat_voltage_end = supported_below(
        chip.sm_clocks, file.voltage.unknown ? kAssumed * chip.sm_clocks.back().value()
                                             : file.voltage.points.front().first);
}

SimChip made_of(const ChipFile& file) {
  const double limit = *file.power.default_w;
  SimChip out{.name = file.name,
              .product = file.product,
              .architecture = *architecture_of(file.architecture),
              .sm_clocks = megahertz(sm_clocks(file.clocks)),
              .memory_clock = Megahertz(*file.clocks.memory_mhz),
              .power_limits = {Watts(file.power.lowest_w.value_or(limit)),
                               Watts(file.power.highest_w.value_or(limit)), Watts(limit)},
              .power_limit_fixed = file.power.fixed,
              .voltage = voltage_of(file),
              .idle_power = idle_power_of(file),
              .thermal = thermal_of(file),
              .latency = {from_seconds(file.switching.median_s), from_seconds(file.switching.p99_s),
                          from_seconds(file.switching.rise_s)},
              .sensors = sensors_of(file.sensors),
              .driver = driver_of(file)};
  for (const LowerMemoryClock& lower : file.lower_memory_clocks) {
    out.lower_memory_clocks.push_back({Megahertz(*lower.memory_mhz), megahertz(sm_clocks(lower))});
    out.memory_saves.emplace_back(lower.saves_w);
  }
  out.voltage_known = !file.voltage.unknown;
  set_flat_voltage_end(out, file);
  out.unused_clock = file.unused_mhz ? Megahertz(*file.unused_mhz) : out.sm_clocks.front();
  if (const auto& roof = file.memory_roof; roof.full_from_mhz)
    out.memory_roof = MemoryRoof{Megahertz(*roof.full_from_mhz), *roof.exponent};
  if (const auto& kin = file.same_silicon; !kin.chip.empty())
    out.kin = Kin{kin.chip, kin.memory_time};
  for (const ChipSource& each : file.sources)
    out.provenance.push_back({each.what, each.source, each.assumed});
  if (file.idle.unknown)
    out.provenance.push_back(
        {"idle power", "not known: 15 % of the power limit are assumed", true});
  return out;
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
  // In a function: names of tests are made of it, before main.
  static const std::vector<SimChip> all = [] {
    std::vector<SimChip> out;
    for (const char* const* each = kBuiltInChips; *each != nullptr; each += 2) {
      const auto file = parse_chip_file(each[1], each[0]);
      CHECK(file.ok());
      out.push_back(made_of(*file));
    }
    return out;
  }();
  return all;
}

Result<const SimChip*> find_sim_chip(std::string_view name) {
  // Of the chips that the name is a part of: all, those whose voltage is known, and of these those
  // that stand for their silicon.
  std::vector<const SimChip*> fitting, modelled, heads;
  std::string known;
  const std::string key = to_lower(name);
  for (const SimChip& chip : sim_chips()) {
    if (to_lower(chip.name) == key) return &chip;
    if (!key.empty() && to_lower(chip.name).find(key) != std::string::npos) {
      fitting.push_back(&chip);
      if (chip.voltage_known) modelled.push_back(&chip);
      if (chip.voltage_known && !chip.kin) heads.push_back(&chip);
    }
    known += known.empty() ? "" : ", ";
    known += chip.name;
  }
  if (fitting.size() == 1) return fitting.front();
  if (modelled.size() == 1) return modelled.front();
  if (heads.size() == 1) return heads.front();
  return Error{Errc::not_found, fmt::format("no simulated chip '{}'{}", name,
                                            choices(name, "; there are: ", known))};
}

Result<std::string_view> sim_chip_file(std::string_view name) {
  const SimChip* chip = TRY(find_sim_chip(name));
  return kBuiltInChips[2 * (chip - sim_chips().data()) + 1];
}

Result<SimChip> open_sim_chip(const std::string& name) {
  if (!is_chip_path(name)) return *TRY(find_sim_chip(name));
  return parse_sim_chip(TRY(read_file(name)), name);
}

Result<SimChip> parse_sim_chip(std::string_view toml, std::string_view file) {
  const ChipFile parsed = TRY(parse_chip_file(toml, file));
  const std::string& kin = parsed.same_silicon.chip;
  std::string known;
  bool found = kin.empty();
  for (const SimChip& chip : sim_chips()) {
    if (chip.kin) continue;
    found = found || chip.name == kin;
    known += (known.empty() ? "" : ", ") + chip.name;
  }
  if (found) return made_of(parsed);
  return Error{
      Errc::bad_config,
      fmt::format("{}: no built-in chip \"{}\" with workloads of its own{}",
                  parsed.place_of("same_silicon.chip"), kin, choices(kin, "; there are ", known))};
}

SimChip with_reference_sensors(SimChip chip) {
  chip.sensors.utilisation = {milliseconds(10), kReferenceWindow, 1.0};
  chip.latency = {milliseconds(25), milliseconds(25)};
  return chip;
}

SimChip with_dcgm_sensors(SimChip chip) {
  SensorSpec& sensors = chip.sensors;
  if (sensors.activity_window) return chip;
  sensors.activity_window = milliseconds(100);
  sensors.activity_lag = milliseconds(300);
  sensors.activity_noise = 0.005;
  sensors.activity_glitches = 4.0 / 1200;
  sensors.activity_by_dcgm = true;
  return chip;
}

GpuModes sim_modes(const SimChip& chip) {
  const DriverSpec& driver = chip.driver;
  GpuModes out{.display = driver.display, .virtualisation = Virtualisation::none};
  if (driver.clock_offsets) out.sm_clock_offset = out.memory_clock_offset = 0;
  if (driver.power_mizer) out.power_mizer = PowerMizer::adaptive;
  if (driver.power_profiles) out.power_profiles.emplace();
  return out;
}

Capability sim_capability(const SimChip& chip, int index) {
  Capability out;
  out.id = {index, fmt::format("{}{:012x}", kSimulatedUuid, index),
            fmt::format("00000000:{:02X}:00.0", 0x10 + index), chip.product};
  out.architecture = chip.architecture;
  out.sm_clocks = chip.sm_clocks;
  for (const MemoryClock& lower : chip.lower_memory_clocks)
    out.memory_clocks.insert(out.memory_clocks.begin(), lower.clock);
  out.lower_memory_clocks = chip.lower_memory_clocks;
  out.memory_clocks.push_back(chip.memory_clock);
  if (!chip.power_limit_fixed) out.power_limits = chip.power_limits;
  out.slowdown_temperature = chip.thermal.slowdown;
  if (chip.flat_voltage_end_known) out.flat_voltage_end = chip.flat_voltage_end;
  out.energy_counter = chip.sensors.energy_counter && !counts_its_module(chip.product);
  out.instant_power = chip.sensors.instant.has_value();
  out.averaged_power = chip.sensors.average.has_value();
  out.activity_counters =
      chip.sensors.activity_window.has_value() && !chip.sensors.activity_by_dcgm;
  out.memory_lock = chip.driver.memory_lock && !chip.lower_memory_clocks.empty();
  out.modes = sim_modes(chip);
  out.process_list = true;
  return out;
}

}  // namespace derate
