// Axes of [stress] in an experiment, in any combination: circumstances made harder for a policy,
// such as counter noise, switch latency, short jobs or other tenants.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "device/replay/launch_work.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_workload.h"
#include "lab/power_cap.h"
#include "lab/session.h"

namespace derate {

// Changes of a workload's points: of its performance and its counters at each clock.
struct WorkStress {
  double beyond_ratio = 0;                // lose_more()
  std::optional<double> counter_follows;  // follow_progress(); empty: as the workload has it
  double memory_bias = 0;                 // overstate_memory()
  double shown_off = 0, step_mhz = 0;     // run_at_real_clocks()
};

// Circumstances of the jobs themselves: how they follow each other, how their work changes, what it
// launches, and under which power limit.
struct JobCircumstances {
  LaunchWork launch_work;
  std::optional<Duration> launch_drift_over;   // empty: the job's length
  std::optional<Duration> gap;                 // empty: Circumstances::idle and what is added to it
  double phase_spread = 0;                     // PhaseSpread::share of phase pairs
  Duration change = std::chrono::seconds(60);  // of change pairs, at most the job's length
  PowerCap power_cap;
};

// A session's circumstances, before stress the experiment's own.
struct Circumstances {
  SimChip chip;
  Duration work{}, idle{};
  Duration phase_period = std::chrono::seconds(10);
  double drift_kelvin = 0, driver_cost = 0;
  int tenants = 0;
  Duration outsider_every{}, heartbeat_every{};
  WorkStress work_stress;
  HeldClock held;
  JobCircumstances jobs;
  std::optional<int> gpus;  // of each job; empty: as the work has it
  double slow_gpu = 0;
};

struct Axis {
  const char* key;  // in [stress]
  const char* label;
  const char* unit;
  std::vector<double> Experiment::*values;
  void (*apply)(double value, Circumstances& circumstances);
};

// All of them, in the order of the documentation.
std::span<const Axis> axes();

// One combination: the axes that the experiment varies, each with its value.
struct Cell {
  struct Value {
    const Axis* axis;
    double value;
  };
  std::vector<Value> values;

  std::string text() const;  // "counter window 1 s, counter noise 5 points"; empty: no stress
};

// Every combination of what the experiment names; without any, one cell without stress.
std::vector<Cell> cells_of(const Experiment& experiment);

// From this share of the highest clock down memory_bias and beyond_ratio are there in full.
inline constexpr double kBiasFrom = 1207.0 / 1530;

// Has its memory counters overstate by that share of their full value at kBiasFrom of the highest
// clock and below, and in proportion above.
void overstate_memory(Workload& workload, double bias, const SimChip& chip);

// Takes so much of its performance, 1 being that at the highest clock: in full at kBiasFrom of that
// clock and below, in proportion above. Its memory counters and pipes' activity fall with it; its
// power stays.
void lose_more(Workload& workload, double by, const SimChip& chip);

// Has its memory counters and its pipes' activity x clock follow performance by that share: at a
// clock their value at the highest x (1 - share x loss of performance).
void follow_progress(Workload& workload, double share, const SimChip& chip);

// The clock at which the chip runs while it shows `shown`: the highest as it is; below it the next
// step of `step_mhz` from the highest that is not above (0: any), less the share `off`.
Megahertz real_clock(Megahertz shown, const SimChip& chip, double off, double step_mhz);
// Has the work do at each shown clock what it does at the real one, linear between the chip's. The
// GPU without work stays as it is at the shown clock.
void run_at_real_clocks(Workload& workload, double off, double step_mhz, const SimChip& chip);

// All of these, in the order of WorkStress.
void apply_stress(Workload& workload, const WorkStress& stress, const SimChip& chip);

Circumstances circumstances(const Experiment& experiment, const SimChip& chip, const Cell& cell);

}  // namespace derate
