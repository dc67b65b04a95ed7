// What NVML would show of a simulated GPU: counters that refresh at their own pace, look back over
// their own window, carry noise and are quantised. The truth stays in SimGpu.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/sample.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_workload.h"

namespace derate {

class SimSensors {
 public:
  // `step` is the physics step: windows are whole numbers of steps, at least one.
  SimSensors(const SensorSpec& spec, Duration step, std::uint64_t seed);

  // The GPU was in this state before time began: that is what a read shows until the first renewal.
  void begin_in(const OperatingPoint& point, Watts power);

  // One physics step ended: what was true during it.
  void step(const OperatingPoint& point, Watts power);

  // What a read shows now. Clocks, temperature and throttle reasons are the GPU's to add.
  struct Shown {
    std::optional<Fraction> gpu_utilisation, memory_utilisation;
    // Empty before the first renewal, but for begin_in().
    std::optional<Watts> power_usage, power_instant, power_average;
    Joules energy{};
    Activity activity;
    std::int64_t activity_window = 0;  // counts the windows: the same number, the same window
  };
  const Shown& shown() const { return shown_; }

 private:
  // Running sums since the start; a mean over a window is a difference of two.
  struct Sums {
    double gpu = 0, memory = 0, power = 0;
    double gpu_unknown = 0, memory_unknown = 0;  // steps
  };
  // A reading that is renewed every `every` steps over the last `window` steps.
  struct Schedule {
    std::int64_t every = 1, window = 1, next = 1;
  };

  Schedule schedule(Duration refresh, Duration window);
  bool due(Schedule& schedule) const;
  double mean(double Sums::*quantity, const Schedule& schedule) const;
  double power_sum(std::int64_t step) const;
  void count_energy();
  void renew_utilisation();
  std::optional<Fraction> quantised(double unknown, double mean_share);
  Watts noisy_power(const Schedule& schedule, Watts noise);
  void accumulate_activity(const Activity& activity);
  void publish_activity();

  SensorSpec spec_;
  Duration step_;
  std::mt19937_64 random_;
  std::normal_distribution<double> gauss_{0, 1};
  std::int64_t now_ = 0;  // steps so far
  Sums total_;
  std::vector<Sums> history_;  // ring by step number; a power of two
  Schedule utilisation_, usage_, instant_, average_, energy_, activity_;
  std::int64_t energy_lag_ = 0, energy_sight_ = 0;  // steps; a sight of 0 sees everything
  double counted_ = 0;                              // W x steps that the energy counter has
  std::vector<double> activity_sums_;
  std::vector<std::int64_t> activity_counts_;  // steps of the window in which the share was known
  Shown shown_;
};

}  // namespace derate
