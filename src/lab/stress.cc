#include "lab/stress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace derate {
namespace {

using C = Circumstances;

const std::array kAxes{
    Axis{"counter_window_s", "counter window", "s", &Experiment::counter_window_s,
         [](double v, C& c) { c.chip.sensors.utilisation.window = from_seconds(v); }},
    Axis{"counter_noise_points", "counter noise", "points", &Experiment::counter_noise_points,
         [](double v, C& c) { c.chip.sensors.utilisation.noise_points = v; }},
    Axis{"power_window_s", "power window", "s", &Experiment::power_window_s,
         [](double v, C& c) {
           c.chip.sensors.usage.window = from_seconds(v);
           if (c.chip.sensors.instant) c.chip.sensors.instant->window = from_seconds(v);
         }},
    Axis{"switch_latency_s", "switch latency", "s", &Experiment::switch_latency_s,
         [](double v, C& c) {
           c.chip.latency = {from_seconds(v), from_seconds(v)};
         }},
    Axis{"work_s", "job", "s", &Experiment::stress_work_s,
         [](double v, C& c) { c.work = from_seconds(v); }},
    Axis{"idle_s", "idle before", "s", &Experiment::stress_idle_s,
         [](double v, C& c) { c.idle = from_seconds(v); }},
    Axis{"phase_period_s", "phase period", "s", &Experiment::phase_period_s,
         [](double v, C& c) { c.phase_period = from_seconds(v); }},
    Axis{"phase_spread", "phase spread", "", &Experiment::phase_spread,
         [](double v, C& c) { c.jobs.phase_spread = v; }},
    Axis{"change_s", "change over", "s", &Experiment::change_s,
         [](double v, C& c) { c.jobs.change = from_seconds(v); }},
    Axis{"gap_s", "gap", "s", &Experiment::gap_s,
         [](double v, C& c) { c.jobs.gap = from_seconds(v); }},
    Axis{"power_limit_w", "power limit", "W", &Experiment::power_limit_w,
         [](double v, C& c) { c.jobs.power_cap.limit = Watts(v); }},
    Axis{"power_limit_every_s", "on and off every", "s", &Experiment::power_limit_every_s,
         [](double v, C& c) { c.jobs.power_cap.every = from_seconds(v); }},
    Axis{"launch_drift", "work per launch grows by", "", &Experiment::launch_drift,
         [](double v, C& c) { c.jobs.launch_work.drift = v; }},
    Axis{"launch_drift_s", "over", "s", &Experiment::launch_drift_s,
         [](double v, C& c) { c.jobs.launch_drift_over = from_seconds(v); }},
    Axis{"launch_wave", "work per launch waves by", "", &Experiment::launch_wave,
         [](double v, C& c) { c.jobs.launch_work.wave = v; }},
    Axis{"launch_wave_s", "over", "s", &Experiment::launch_wave_s,
         [](double v, C& c) { c.jobs.launch_work.wave_period = from_seconds(v); }},
    Axis{"launch_random", "work per launch random within", "", &Experiment::launch_random,
         [](double v, C& c) { c.jobs.launch_work.random = v; }},
    Axis{"launch_sorted", "batches sorted, work per launch within", "", &Experiment::launch_sorted,
         [](double v, C& c) { c.jobs.launch_work.sorted = v; }},
    Axis{"drift_kelvin", "drift", "K", &Experiment::drift_kelvin,
         [](double v, C& c) { c.drift_kelvin = v; }},
    Axis{"tenants", "tenants", "", &Experiment::tenants,
         [](double v, C& c) { c.tenants = static_cast<int>(v); }},
    Axis{"outsider_every_s", "another tool every", "s", &Experiment::outsider_every_s,
         [](double v, C& c) { c.outsider_every = from_seconds(v); }},
    Axis{"heartbeat_every_s", "heartbeat every", "s", &Experiment::heartbeat_every_s,
         [](double v, C& c) { c.heartbeat_every = from_seconds(v); }},
    Axis{"counter_gain", "counter gain", "", &Experiment::counter_gain,
         [](double v, C& c) { c.chip.sensors.counter_gain = v; }},
    Axis{"counter_wander", "counter gain wandering", "", &Experiment::counter_wander,
         [](double v, C& c) { c.chip.sensors.counter_wander = v; }},
    Axis{"counter_frozen_s", "counters frozen", "s", &Experiment::counter_frozen_s,
         [](double v, C& c) {
           c.chip.sensors.frozen = {from_seconds(v), std::chrono::seconds(20)};
         }},
    Axis{"counter_frozen_every_s", "every", "s", &Experiment::counter_frozen_every_s,
         [](double v, C& c) { c.chip.sensors.frozen.every = from_seconds(v); }},
    Axis{"memory_bias", "memory bias", "", &Experiment::memory_bias,
         [](double v, C& c) { c.memory_bias = v; }},
    Axis{"activity_noise", "activity noise", "", &Experiment::activity_noise,
         [](double v, C& c) { c.chip.sensors.activity_noise = v; }},
    Axis{"gpus", "GPUs", "", &Experiment::gpus,
         [](double v, C& c) { c.gpus = static_cast<int>(v); }},
    Axis{"slow_gpu", "slower GPU", "", &Experiment::slow_gpu,
         [](double v, C& c) { c.slow_gpu = v; }},
};

// What a memory counter shows at a clock, of what it shows at the highest.
void overstate(std::optional<Fraction>& shown, std::optional<Fraction> full, double by) {
  if (shown && full) shown = Fraction(std::clamp(shown->value() + by * full->value(), 0.0, 1.0));
}

}  // namespace

std::span<const Axis> axes() { return kAxes; }

std::string Cell::text() const {
  std::string out;
  for (const auto& [axis, value] : values)
    out += fmt::format("{}{} {}{}{}", out.empty() ? "" : ", ", axis->label, value,
                       *axis->unit == '\0' ? "" : " ", axis->unit);
  return out;
}

std::vector<Cell> cells_of(const Experiment& experiment) {
  std::vector<Cell> cells(1);
  for (const Axis& axis : axes()) {
    const std::vector<double>& values = experiment.*axis.values;
    if (values.empty()) continue;
    std::vector<Cell> wider;
    for (const Cell& cell : cells)
      for (const double value : values) {
        wider.push_back(cell);
        wider.back().values.push_back({&axis, value});
      }
    cells = std::move(wider);
  }
  return cells;
}

void overstate_memory(Workload& workload, double bias, const SimChip& chip) {
  for (Phase& phase : workload.phases) {
    const OperatingPoint full = phase.points.back();
    for (std::size_t i = 0; i < phase.points.size(); ++i) {
      const double below = 1 - chip.sm_clocks[i] / chip.sm_clocks.back();
      const double by = bias * std::min(1.0, below / (1 - kBiasFrom));
      overstate(phase.points[i].memory_utilisation, full.memory_utilisation, by);
      overstate(phase.points[i].activity.dram, full.activity.dram, by);
    }
  }
}

Circumstances circumstances(const Experiment& experiment, const SimChip& chip, const Cell& cell) {
  Circumstances out{.chip = chip,
                    .work = from_seconds(experiment.work_s),
                    .idle = from_seconds(experiment.idle_s)};
  for (const auto& [axis, value] : cell.values) axis->apply(value, out);
  out.jobs.launch_work.drift_over = out.jobs.launch_drift_over.value_or(out.work);
  out.jobs.change = std::min(out.jobs.change, out.work);
  return out;
}

}  // namespace derate
