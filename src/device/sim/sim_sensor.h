// Simulated NVML sensors of a simulated GPU: counters that refresh at their own pace, look back
// over their own window, carry noise and are quantised. The truth stays in SimGpu.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
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
  Shown shown() const;
  std::optional<Fraction> gpu_utilisation() const;
  std::optional<Fraction> memory_utilisation() const;
  Joules energy() const;
  const Activity& activity() const { return activity_shown_; }
  std::int64_t activity_window() const { return activity_shown_window_; }

 private:
  // Running sums since the start; a mean over a window is a difference of two.
  struct Sums {
    double gpu = 0, memory = 0, power = 0;
    double gpu_unknown = 0, memory_unknown = 0;  // steps
  };
  // A reading that is renewed every `every` steps over the last `window` steps. Each has a noise of
  // its own, by `stream`.
  struct Schedule {
    std::int64_t every = 1, window = 1, first = 1;
    std::uint64_t stream = 0;
    std::int64_t lag = 0;
  };
  struct Counter;

  Schedule schedule(Duration refresh, Duration window, Duration lag = {});
  std::int64_t seen_now() const;
  double mean(double Sums::*quantity, const Schedule& schedule, std::int64_t renewal) const;
  const Sums& sums_at(std::int64_t step) const;
  double power_sum(std::int64_t step) const;
  double gain_at(std::int64_t step, std::uint64_t stream) const;
  std::optional<Fraction> utilisation(const Counter& counter, std::optional<Fraction> before) const;
  std::optional<Watts> power(const Schedule& schedule, const PowerSensorSpec& spec) const;
  void count_energy();
  void accumulate_activity(const Activity& activity);
  void make_activity();
  void publish_activity();
  bool shows(const ActivityShare& share) const;
  double glitch();

  SensorSpec spec_;
  Duration step_;
  std::uint64_t seed_, streams_ = 0;
  std::int64_t now_ = 0;  // steps so far
  Sums total_;
  std::vector<Sums> history_;  // ring by step number; a power of two
  Schedule utilisation_, usage_, instant_, average_, energy_, activity_;
  std::int64_t activity_lag_ = 0;                   // steps
  std::int64_t energy_lag_ = 0, energy_sight_ = 0;  // steps; a sight of 0 sees everything
  double counted_ = 0;                              // W x steps that the energy counter has
  std::int64_t frozen_ = 0, frozen_every_ = 0, frozen_phase_ = 0;  // steps
  std::vector<double> activity_sums_;
  std::vector<std::int64_t> activity_counts_;  // steps of the window in which the share was known
  double glitch_ = 0;                          // of the window before
  Shown begun_;                                // before the first renewal
  // Windows that have ended: the last one, those that are not shown yet with the step at which they
  // will be, and the one that is shown.
  std::int64_t activity_window_ = 0;
  Activity activity_made_;
  std::deque<std::pair<std::int64_t, Activity>> activity_late_;
  Activity activity_shown_;
  std::int64_t activity_shown_window_ = 0;
};

}  // namespace derate
