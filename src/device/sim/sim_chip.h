// Simulated GPUs: what each chip's silicon does and what its sensors show of it. The catalogue is
// data/chips/*.toml, whose figures have their sources; what is assumed is marked so there and in
// `derate sim list`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/capability.h"

namespace derate {

// A value given at some clocks, linear between them and constant outside.
using ClockPoint = std::pair<double, double>;  // MHz, value
class ClockCurve {
 public:
  ClockCurve() = default;  // 0 at every clock
  ClockCurve(std::initializer_list<ClockPoint> points) : points_(points) {}
  explicit ClockCurve(std::vector<ClockPoint> points) : points_(std::move(points)) {}
  double at(Megahertz clock) const;

 private:
  std::vector<ClockPoint> points_{{0, 0}};  // ascending; at least one
};

// A utilisation counter: every `refresh` the mean of the last `window`, with Gaussian noise of
// `noise_points` percent points, independent at each refresh, rounded to whole steps of
// `step_points` percent points.
struct CounterSpec {
  Duration refresh{};
  Duration window{};
  double noise_points = 0;
  double step_points = 1;
  Duration lag{};                  // it shows what was true so long ago
  bool gpu = true, memory = true;  // which of the two exist
};

// A power reading: every `refresh` the mean of the last `window`, with Gaussian noise of `noise`
// and of that share of the reading, together; rounded to whole steps of `step`, where there are
// any.
struct PowerSensorSpec {
  Duration refresh{};
  Duration window{};
  Watts noise{};
  double noise_share = 0;
  Watts step{};
  Duration lag{};  // it shows what was true so long ago
};

// Counters that stand still: for the first `lasts` of each `every`, from a moment of their own.
struct FrozenSpec {
  Duration lasts{}, every{};
};

struct SensorSpec {
  CounterSpec utilisation;
  PowerSensorSpec usage;                   // nvmlDeviceGetPowerUsage
  std::optional<PowerSensorSpec> instant;  // field 186
  std::optional<PowerSensorSpec> average;  // field 185
  bool energy_counter = true;              // it exists
  Duration energy_refresh{};
  // The energy counter looks at the power only so long before each refresh and takes it for the
  // whole; empty: it sees all of it.
  std::optional<Duration> energy_sight;
  Duration energy_lag{};                    // it tells what was true so long ago
  std::optional<Duration> activity_window;  // GPM or DCGM; empty where neither shows activity
  bool activity_by_dcgm = false;            // those of its shares that DCGM measures in one pass
  Duration activity_lag{};                  // of each window behind its end
  double activity_blank = 0;                // share of the windows without any value
  double activity_noise = 0;                // of each GPM window, relative, sd
  double activity_glitches = 0;             // share of the windows whose DRAM share is far off
  // Of utilisation and activity: what they show of what is true, the amplitude by which that
  // wanders (a sine of 60 s), and when they stand still.
  double counter_gain = 1, counter_wander = 0;
  FrozenSpec frozen;
  // The driver gives each sample of so long to one process whole; empty: each its own share.
  std::optional<Duration> process_sample;
  // Whose it is: who has the GPU at one moment of it. Turns and samples drift against each other by
  // so much from sample to sample, sd, in turns: far below 1 the same process is met again.
  double process_drift = 1;
  double power_gain = 1;        // the card's calibration error; energy counter included
  double loss_probability = 0;  // a read fails
  double late_probability = 0;  // a read returns what the one before it returned
};

// Clock-switch latency: lognormal by median and 99th percentile; equal ones are a constant.
// A clock higher than the one that runs takes exactly `rise`, where that is above zero.
struct LatencySpec {
  Duration median{};
  Duration p99{};
  Duration rise{};
};

struct ThermalSpec {
  double kelvin_per_watt = 0;
  Duration time_constant{};
  Celsius ambient{};
  Celsius slowdown{};             // the hardware lowers the clock from here
  Celsius reference{};            // where leakage is already part of the workloads' power
  Watts leakage{};                // at the reference temperature and the lowest voltage
  double leakage_per_kelvin = 0;  // exponent: leakage x e^(k (T - reference))
};

// Below `full_from` memory and caches slow down with the SM clock.
struct MemoryRoof {
  Megahertz full_from{};
  double exponent = 0;

  // How much longer memory takes than at full speed; 1 from `full_from` up.
  double slowdown(Megahertz clock) const;
};

// The chip whose workloads this one runs besides its own, because the silicon is the same.
struct Kin {
  std::string chip;
  double memory_time = 1;  // how much longer memory takes here: the ratio of the bandwidths
};

// How its driver answers where drivers differ; the settings of others that it reads.
struct DriverSpec {
  enum class ApplicationClocks : std::uint8_t { set, deprecated, absent };
  ApplicationClocks application_clocks = ApplicationClocks::set;
  bool memory_lock = false;             // memory clocks can be locked
  bool old_process_utilisation = true;  // nvmlDeviceGetProcessUtilization answers
  bool clock_offsets = false, power_mizer = false, power_profiles = false;  // can be read
  bool display = false;                                                     // one is attached
};

struct Provenance {
  std::string what;
  std::string source;
  bool assumed = false;
};

struct SimChip {
  std::string name;     // where Derate knows the product, as in core/chip_facts.h
  std::string product;  // as NVML would name it
  Architecture architecture;
  std::vector<Megahertz> sm_clocks;  // ascending
  Megahertz memory_clock;
  std::vector<MemoryClock> lower_memory_clocks;  // descending
  std::vector<Watts> memory_saves;               // with each of them
  PowerLimits power_limits;
  bool power_limit_fixed = false;  // the driver lets nobody change it, as on laptops
  // Not known: 75 % of the highest clock, which a driver would not tell either.
  Megahertz flat_voltage_end;
  bool flat_voltage_end_known = true;
  bool voltage_known = true;
  ClockCurve voltage;                     // V(f) / Vmin; 1 at every clock where it is not known
  ClockCurve idle_power;                  // watts with the clock held and nothing running
  std::optional<MemoryRoof> memory_roof;  // empty: full speed at every clock
  std::optional<Kin> kin;
  Megahertz unused_clock;  // where an unlocked GPU goes when nobody holds a context
  ThermalSpec thermal;
  LatencySpec latency;
  SensorSpec sensors;
  DriverSpec driver;
  std::vector<Provenance> provenance;
};

// The catalogue. It lives as long as the process.
std::span<const SimChip> sim_chips();

// By name, letters of any case, or a part of it that fits no other. If several fit, those whose
// voltage is not known are left out, then those with kin: "v100" is the SXM2, not the MaxQ.
// Errors: not_found, naming the chips there are.
Result<const SimChip*> find_sim_chip(std::string_view name);

// A chip by find_sim_chip(), or of its file where `name` is a path (docs/chips.md).
// Errors: not_found, no_permission, io; bad_config naming FILE:LINE:COLUMN.
Result<SimChip> open_sim_chip(const std::string& name);
// The file of a chip of the catalogue, as TOML. Errors: those of find_sim_chip().
Result<std::string_view> sim_chip_file(std::string_view name);
// open_sim_chip() of a file's text. Errors: bad_config.
Result<SimChip> parse_sim_chip(std::string_view toml, std::string_view file);

// The sensors that comparisons with the published code's replay assume: integer readings, 1 point
// of noise, a 167 ms window that ends at the reading, 25 ms switch latency. Applied onto the chip's
// own.
SimChip with_reference_sensors(SimChip chip);

// The sensors of a chip without GPM whose activity a DCGM host engine measures, each 100 ms, its
// shortest sound period (NVIDIA/DCGM#310), and 0.3 s late (#170). Noise and glitches are assumed to
// be those of an H200's GPM.
SimChip with_dcgm_sensors(SimChip chip);

// The settings of other tools, as the maker ships them.
GpuModes sim_modes(const SimChip& chip);

// What the driver would tell of it, as GPU `index`.
Capability sim_capability(const SimChip& chip, int index);

}  // namespace derate
