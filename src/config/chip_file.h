// A simulated GPU's chip as plain values: its clocks, limits, physics and sensors, with the one
// declaration that drives parsing, defaults, checks and documentation of its file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/setting_info.h"
#include "core/capability.h"

namespace derate {

// SM clocks in MHz: whole, ascending.
struct ClockList {
  std::vector<double> mhz;
};

// A curve over the SM clock: [MHz, value], clocks ascending. Linear between the points, constant
// beyond them.
struct ClockPoints {
  std::vector<std::pair<double, double>> points;
  bool unknown = false;  // the text "unknown"
};

// The SM clocks with one memory clock: a list, or a grid of which drivers list whole megahertz.
struct ChipClocks {
  std::optional<double> memory_mhz;
  ClockList sm_mhz;
  std::optional<double> lowest_mhz, step_mhz, highest_mhz;
};

struct LowerMemoryClock : ChipClocks {
  double saves_w = 0;
};
// As a driver lists them, ascending.
std::vector<double> sm_clocks(const ChipClocks& clocks);

struct ChipPowerSensor {
  double refresh_s = 0.1, window_s = 0.1, noise_w = 0, noise_share = 0, step_w = 0, lag_s = 0;
};

// Answers of its driver.
struct ChipDriver {
  std::string application_clocks = "set", process_utilisation = "old";
  std::string memory_lock = "by_architecture";
  bool clock_offsets = false, power_mizer = false, power_profiles = false, display = false;
};

// A figure's origin, for people.
struct ChipSource {
  std::string what, source;
  bool assumed = false;
};

// The chip's sensors.
struct ChipSensors {
  std::vector<std::string> counters{"gpu_utilisation", "memory_utilisation", "energy"};
  struct {
    double refresh_s = 0.1, window_s = 0.1, noise_points = 0, step_points = 1, lag_s = 0;
  } utilisation;
  ChipPowerSensor power_usage, power_instant, power_average;
  struct {
    double refresh_s = 0.1, lag_s = 0;
    std::optional<double> sight_s;
  } energy;
  struct {
    double window_s = 0.1, noise = 0, glitches = 0;
  } activity;

  // By its name in the file: "power_instant".
  bool has(std::string_view counter) const;
};

struct ChipFile {
  std::string name, product, architecture = "unknown";
  ChipClocks clocks;
  std::optional<double> unused_mhz, efficient_mhz;
  struct {
    std::optional<double> lowest_w, highest_w, default_w;
    bool fixed = false;
  } power;
  ClockPoints idle, voltage;
  struct {
    std::optional<double> full_from_mhz, exponent;
  } memory_roof;
  struct {
    std::string chip;
    double memory_time = 1;
  } same_silicon;
  struct {
    double kelvin_per_watt = 0.1, time_constant_s = 25, ambient_celsius = 30;
    double slowdown_celsius = 87, reference_celsius = 50, leakage_w = 0;
    double leakage_per_kelvin = 0.015;
  } thermal;
  struct {
    double median_s = 0.02, p99_s = 0.15, rise_s = 0;
  } switching;
  ChipSensors sensors;
  ChipDriver driver;
  std::vector<LowerMemoryClock> lower_memory_clocks;
  std::vector<ChipSource> sources;

  std::string file;                          // for messages
  std::map<std::string, std::string> where;  // "power.default_w": FILE:LINE:COLUMN
  // Of a key as it stands in the file; the file's name where it does not.
  const std::string& place_of(const std::string& key) const;
};

// Largest figures that a file may have: beyond any GPU's.
inline constexpr double kHighestMegahertz = 20'000, kMostWatts = 10'000, kMostSeconds = 60;
// An NVML client's table of supported clocks has room for more.
inline constexpr std::size_t kMostClocks = 1024, kMostLowerMemoryClocks = 4;

// The keys of [clocks] and of a [[lower_memory_clock]].
void visit_chip_clocks(auto& c, auto&& visit, const char* section) {
  const Section clocks{section, visit};
  clocks("memory_mhz", "MHz", "the memory clock; required", c.memory_mhz, 1, kHighestMegahertz);
  clocks("sm_mhz", "MHz", "the SM clocks, ascending, as the driver lists them", c.sm_mhz, 1,
         kHighestMegahertz);
  clocks("lowest_mhz", "MHz", "instead of sm_mhz: the lowest of a grid", c.lowest_mhz, 1,
         kHighestMegahertz);
  clocks("step_mhz", "MHz", "... its step; with 7.5 the driver lists 135, 142, 150, 157",
         c.step_mhz, 1, 1000);
  clocks("highest_mhz", "MHz", "... and its highest clock", c.highest_mhz, 1, kHighestMegahertz);
}

void visit_lower_memory_clock(auto& c, auto&& visit) {
  visit_chip_clocks(c, visit, "lower_memory_clock");
  const Section lower{"lower_memory_clock", visit};
  lower("saves_w", "W",
        "the board draws so much less with this memory clock; without a context it goes to the "
        "lowest one if that saves anything",
        c.saves_w, 0, kMostWatts);
}

void visit_chip_source(auto& s, auto&& visit) {
  const Section source{"source", visit};
  source("what", "", "the figure", s.what);
  source("source", "", "where it is from", s.source);
  source("assumed", "", "true: it is assumed or inferred, not measured", s.assumed);
}

void visit_chip_power(auto& c, auto& visit) {
  const Section power{"power", visit};
  power("default_w", "W", "the power limit; required", c.power.default_w, 1, kMostWatts);
  power("lowest_w", "W", "the lowest that may be set; default: default_w", c.power.lowest_w, 1,
        kMostWatts);
  power("highest_w", "W", "the highest; default: default_w", c.power.highest_w, 1, kMostWatts);
  power("fixed", "", "true: the driver lets nobody change it, as on laptops", c.power.fixed);
  const Section idle{"idle", visit};
  idle("watts", "W",
       "[MHz, W] points: board power with the clock held and nothing running; or \"unknown\": 15 % "
       "of "
       "the power limit are assumed; required",
       c.idle, 0, kMostWatts);
  const Section voltage{"voltage", visit};
  voltage("curve", "",
          "[MHz, V] points, in any unit: it is taken relative to the first; or \"unknown\"; "
          "required. It sets the power of fitted workloads and leakage; measured tables do "
          "without",
          c.voltage, 0.001, 10'000);
}

void visit_chip_physics(auto& c, auto& visit) {
  const Section roof{"memory_roof", visit};
  roof("full_from_mhz", "MHz",
       "below this SM clock memory is slower, too; default: at full speed at every clock",
       c.memory_roof.full_from_mhz, 1, kHighestMegahertz);
  roof("exponent", "", "... by (full_from_mhz / clock) to this power", c.memory_roof.exponent, 0,
       10);
  const Section silicon{"same_silicon", visit};
  silicon("chip", "", "a built-in chip whose fitted workloads run on this one, too",
          c.same_silicon.chip);
  silicon("memory_time", "", "how much longer memory takes here: the ratio of the bandwidths",
          c.same_silicon.memory_time, 0.01, 100);
  const Section thermal{"thermal", visit};
  thermal("kelvin_per_watt", "K/W", "above the air, in the end", c.thermal.kelvin_per_watt, 0, 10);
  thermal("time_constant_s", "s", "in which 63 % of a change of temperature come",
          c.thermal.time_constant_s, 0.01, 3600);
  thermal("ambient_celsius", "degrees Celsius", "the air", c.thermal.ambient_celsius, -50, 80);
  thermal("slowdown_celsius", "degrees Celsius", "the hardware lowers the clock from here",
          c.thermal.slowdown_celsius, 20, 200);
  thermal("reference_celsius", "degrees Celsius",
          "where leakage is already part of the workloads' power", c.thermal.reference_celsius, -50,
          200);
  thermal("leakage_w", "W",
          "at the reference temperature and the lowest voltage; measured tables have it in their "
          "power already",
          c.thermal.leakage_w, 0, kMostWatts);
  thermal("leakage_per_kelvin", "1/K", "exponent of its growth", c.thermal.leakage_per_kelvin, 0,
          1);
  const Section change{"switch", visit};
  change("median_s", "s", "a requested clock takes effect after; lognormal, drawn each time",
         c.switching.median_s, 0, kMostSeconds);
  change("p99_s", "s", "99th percentile; the median's value makes it constant", c.switching.p99_s,
         0, kMostSeconds);
  change("rise_s", "s",
         "instead of both, the time to a clock above the present one; 0: no exception",
         c.switching.rise_s, 0, kMostSeconds);
}

void visit_chip_power_sensor(auto& s, auto& visit, const char* name, const char* shown) {
  const Section sensor{name, visit};
  sensor("refresh_s", "s", shown, s.refresh_s, 0.01, kMostSeconds);
  sensor("window_s", "s", "it is the mean of the last", s.window_s, 0.001, kMostSeconds);
  sensor("noise_w", "W", "standard deviation of its Gaussian noise", s.noise_w, 0, 1000);
  sensor("noise_share", "", "... and relative to the reading, together", s.noise_share, 0, 1);
  sensor("step_w", "W", "it is rounded to whole steps of so much; 0: not rounded", s.step_w, 0,
         1000);
  sensor("lag_s", "s", "it shows what was true so long ago", s.lag_s, 0, kMostSeconds);
}

void visit_chip_sensors(auto& s, auto& visit) {
  const Section sensors{"sensors", visit};
  sensors("counters", "",
          "which exist, of gpu_utilisation, memory_utilisation, power_instant, power_average, "
          "energy and activity (GPM); power usage always does",
          s.counters);
  const Section utilisation{"utilisation", visit};
  utilisation("refresh_s", "s", "utilisation is renewed that often", s.utilisation.refresh_s, 0.01,
              kMostSeconds);
  utilisation("window_s", "s", "it is the mean of the last", s.utilisation.window_s, 0.001,
              kMostSeconds);
  utilisation("noise_points", "points", "standard deviation of its Gaussian noise",
              s.utilisation.noise_points, 0, 50);
  utilisation("step_points", "points", "it is rounded to whole steps of so much",
              s.utilisation.step_points, 0.01, 50);
  utilisation("lag_s", "s", "it shows what was true so long ago", s.utilisation.lag_s, 0,
              kMostSeconds);
  visit_chip_power_sensor(s.power_usage, visit, "power_usage",
                          "nvmlDeviceGetPowerUsage is renewed that often");
  visit_chip_power_sensor(s.power_instant, visit, "power_instant",
                          "NVML's field 186 is renewed that often");
  visit_chip_power_sensor(s.power_average, visit, "power_average",
                          "NVML's field 185 is renewed that often");
  const Section energy{"energy", visit};
  energy("refresh_s", "s", "the energy counter is renewed that often", s.energy.refresh_s, 0.01,
         kMostSeconds);
  energy("sight_s", "s",
         "it looks at the power only so long before each renewal; default: it sees all of it",
         s.energy.sight_s, 0.001, kMostSeconds);
  energy("lag_s", "s", "it shows what was true so long ago", s.energy.lag_s, 0, kMostSeconds);
  const Section activity{"activity", visit};
  activity("window_s", "s", "a GPM window's length", s.activity.window_s, 0.01, kMostSeconds);
  activity("noise", "", "standard deviation of each window's noise, relative", s.activity.noise, 0,
           1);
  activity("glitches", "", "share of the windows whose DRAM share is far off", s.activity.glitches,
           0, 1);
}

void visit_chip_driver(auto& d, auto& visit) {
  const Section driver{"driver", visit};
  driver("application_clocks", "",
         "set: they are; deprecated: calls fail so, as from driver 595 on; absent: not supported",
         d.application_clocks);
  driver(
      "memory_lock", "",
      "offered: memory clocks can be locked; absent: they cannot; by_architecture: from Ampere on",
      d.memory_lock);
  driver("process_utilisation", "",
         "old: nvmlDeviceGetProcessUtilization answers; new: nvmlDeviceGetProcessesUtilizationInfo "
         "alone does",
         d.process_utilisation);
  driver("clock_offsets", "", "clock offsets can be read", d.clock_offsets);
  driver("power_mizer", "", "the PowerMizer mode can be read", d.power_mizer);
  driver("power_profiles", "", "workload power profiles can be read", d.power_profiles);
  driver("display", "", "a display is attached", d.display);
}

// Calls visit(info, value) for every key outside [[lower_memory_clock]] and [[source]], in the
// order of the documentation. `c` is a ChipFile, const or not.
void visit_chip_file(auto& c, auto&& visit) {
  const Section chip{"chip", visit};
  chip("name", "", "what tables and experiments call it; required", c.name);
  chip("product", "",
       "the name that NVML gives. Derate knows some products: their facts and priors hold then; "
       "default: the name",
       c.product);
  chip("architecture", "", "pascal, volta, turing, ampere, ada, hopper, blackwell or unknown",
       c.architecture);
  visit_chip_clocks(c.clocks, visit, "clocks");
  const Section clocks{"clocks", visit};
  clocks("unused_mhz", "MHz",
         "the clock of an unlocked GPU without any process; default: the lowest", c.unused_mhz, 1,
         kHighestMegahertz);
  clocks("efficient_mhz", "MHz",
         "the highest clock that still runs at the lowest voltage, an SM clock; default: the "
         "voltage curve's first point; with an unknown curve policies begin at 75 % of the "
         "highest clock, as with any unknown GPU",
         c.efficient_mhz, 1, kHighestMegahertz);
  visit_chip_power(c, visit);
  visit_chip_physics(c, visit);
  visit_chip_sensors(c.sensors, visit);
  visit_chip_driver(c.driver, visit);
}

// Errors: bad_config, naming FILE:LINE:COLUMN, the value and what is allowed. A file has at most
// 1 MiB, and at most 1024 clocks, points of a curve and sources.
Result<ChipFile> parse_chip_file(std::string_view toml, std::string_view file);
// Errors: not_found, no_permission, io, bad_config.
Result<ChipFile> load_chip_file(const std::string& path);

// By to_string()'s word.
std::optional<Architecture> architecture_of(std::string_view word);

// Whether a chip's name is a path to its file: it has a '/' in it, or ends in ".toml".
bool is_chip_path(std::string_view name);

}  // namespace derate
