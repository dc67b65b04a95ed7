// Outcomes in hindsight: of each constant clock, of the best clock for each job (the oracle), and
// of the best mixture of two clocks. From the workloads' own curves, the power limit and the
// leakage of a GPU that has got warm included, start-up not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/envelope.h"
#include "device/sim/sim_workload.h"
#include "lab/power_cap.h"

namespace derate {

// Of a job against the same job at the highest clock.
struct Outcome {
  double loss = 0;  // 1 - perf / perf(max)
  double gain = 0;  // efficiency, perf / mean power, ratio - 1

  double saving() const { return gain / (1 + gain); }  // of energy, for the same work
};

// Time and energy of a piece of work at one clock for long; the regulator mixes two clocks to meet
// the power limit.
struct Steady {
  double seconds = 0, joules = 0;  // of one reference second of work
};

// The workload alone, or sharing the GPU with others by time slices. All its phases, gaps included.
Steady steady(const Workload& workload, std::span<const Workload* const> tenants,
              const SimChip& chip, std::size_t clock, const PowerCap& cap = {});

// At every clock of the envelope, ascending.
struct FixedClock {
  Megahertz clock;
  Outcome outcome;
};
std::vector<FixedClock> fixed_clocks(const Workload& changing,
                                     std::span<const Workload* const> tenants, const SimChip& chip,
                                     const Envelope& envelope, const PowerCap& cap = {});

// The most efficient of them that loses at most delta.
FixedClock oracle(std::span<const FixedClock> clocks, double delta);

// The most efficient mixture in time of two of them that loses at most delta: what no policy that
// only sets clocks can beat on steady work.
Outcome two_clock_bound(std::span<const FixedClock> clocks, double delta);

// Of several applications: means, and the worst.
struct HindsightResult {
  Outcome mean;
  double mean_saving = 0;  // not the saving of the mean
  double worst_loss = 0;
  std::string worst_app;

  void add(const std::string& app, const Outcome& outcome, std::size_t apps);
};

// One clock for all applications.
struct FixedForAll {
  Megahertz clock;
  HindsightResult result;
};

// The gain that such clocks, ascending, give at this mean loss: linear between them; empty outside.
std::optional<double> frontier_gain(std::span<const FixedForAll> frontier, double mean_loss);

}  // namespace derate
