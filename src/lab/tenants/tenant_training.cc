#include "lab/tenants/tenant_training.h"

#include <algorithm>
#include <random>

#include "device/sim/sim_mig.h"

namespace derate {
namespace {

constexpr double kLevels[] = {0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0};
constexpr int kReadings = 6;          // of a second, at each level
constexpr double kMeterError = 0.01;  // relative, sd: a part-time sensor over some seconds
constexpr std::string_view kFour[] = {"gemm_bf16", "copy", "gemm_fp32", "sort"};

struct Place {
  double share = 1, memory_share = 1;
  bool instance = false;
};

// What the board would draw more than idle, alone there: with what wakes with the first.
double board_watts(const Phase& phase, const SimChip& chip, double share) {
  const std::size_t top = chip.sm_clocks.size() - 1;
  const double whole = phase.points[top].power.value() - chip.idle_power.at(chip.sm_clocks[top]);
  return together({}, whole * share);
}

void profile(const UnitWork& work, const SimChip& chip, const Place& place, std::mt19937_64& random,
             std::vector<TrainingPoint>& out) {
  std::normal_distribution<double> gauss(0, 1);
  for (const double level : kLevels) {
    const Phase phase = unit_phase(work, chip, level, place.share, place.memory_share);
    const double watts = board_watts(phase, chip, place.share);
    for (int i = 0; i < kReadings; ++i)
      out.push_back({.activity = phase.points.back().activity,
                     .clock = chip.sm_clocks.back(),
                     .above_idle = Watts(watts * (1 + kMeterError * gauss(random))),
                     .instance = place.instance,
                     .share = Fraction(place.share),
                     .memory_share = Fraction(place.memory_share)});
  }
}

}  // namespace

Result<std::vector<TrainingRun>> profile_workloads(const TenantScenario& scenario) {
  const SimChip& chip = *TRY(find_sim_chip("H200"));
  const auto workloads = TRY(tenant_workloads());
  const auto hidden = hidden_watts_of(workloads, scenario);
  std::mt19937_64 random(99);
  std::vector<TrainingRun> out;
  const MigProfile& whole = mig_profiles(chip).back();
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const UnitWork work{.workload = &workloads[i],
                        .hidden = hidden[i],
                        .gain = 1,
                        .saturation = scenario.saturation};
    TrainingRun run{.workload = workloads[i].name};
    profile(work, chip, {}, random, run.points);
    for (const char* name : {"1g", "2g", "3g"}) {
      const GpuInstance instance = TRY(make_instances(chip, name)).front();
      const Place place{
          .share = static_cast<double>(instance.multiprocessors) / whole.multiprocessors,
          .memory_share = static_cast<double>(instance.memory_slices) / whole.memory_slices,
          .instance = true};
      profile(work, chip, place, random, run.points);
    }
    out.push_back(std::move(run));
  }
  return out;
}

std::vector<TrainingRun> four_of(std::span<const TrainingRun> runs) {
  std::vector<TrainingRun> out;
  for (const TrainingRun& run : runs)
    if (std::find(std::begin(kFour), std::end(kFour), run.workload) != std::end(kFour))
      out.push_back(run);
  return out;
}

}  // namespace derate
