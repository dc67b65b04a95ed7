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

namespace derate {

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
  double drift_kelvin = 0;
  int tenants = 0;
  Duration outsider_every{}, heartbeat_every{};
  double memory_bias = 0;
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

// Has its memory counters overstate by that share of their full value at kBiasFrom of the highest
// clock and below, and in proportion above.
inline constexpr double kBiasFrom = 1207.0 / 1530;
void overstate_memory(Workload& workload, double bias, const SimChip& chip);

Circumstances circumstances(const Experiment& experiment, const SimChip& chip, const Cell& cell);

}  // namespace derate
