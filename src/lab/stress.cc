#include "lab/stress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace derate {
namespace {

using C = Circumstances;

const std::array kAxes{
    // Before counter_window_s: a window that is named stays.
    Axis{"counter_refresh_s", "counters renewed every", "s", &Experiment::counter_refresh_s,
         [](double v, C& c) {
           SensorSpec& sensors = c.chip.sensors;
           CounterSpec& counter = sensors.utilisation;
           counter.refresh = from_seconds(v);
           counter.window = std::max(counter.window, counter.refresh);
           if (sensors.activity_window)
             sensors.activity_window = std::max(*sensors.activity_window, counter.refresh);
         }},
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
         [](double v, C& c) { c.chip.latency.median = c.chip.latency.p99 = from_seconds(v); }},
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
    Axis{"driver_cost", "driver cost", "of an H200's", &Experiment::driver_cost,
         [](double v, C& c) { c.driver_cost = v; }},
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
         [](double v, C& c) { c.work_stress.memory_bias = v; }},
    Axis{"activity_noise", "activity noise", "", &Experiment::activity_noise,
         [](double v, C& c) { c.chip.sensors.activity_noise = v; }},
    Axis{"activity_lag_s", "activity late by", "s", &Experiment::activity_lag_s,
         [](double v, C& c) { c.chip.sensors.activity_lag = from_seconds(v); }},
    Axis{"activity_blank", "activity blank", "", &Experiment::activity_blank,
         [](double v, C& c) { c.chip.sensors.activity_blank = v; }},
    Axis{"counter_step_points", "counter steps", "points", &Experiment::counter_step_points,
         [](double v, C& c) { c.chip.sensors.utilisation.step_points = v; }},
    Axis{"counter_follows", "counters follow by", "", &Experiment::counter_follows,
         [](double v, C& c) { c.work_stress.counter_follows = v; }},
    Axis{"rises_late_s", "clock rises after", "s", &Experiment::rises_late_s,
         [](double v, C& c) { c.chip.latency.rise = from_seconds(v); }},
    Axis{"held_at_start_s", "clock held at the start", "s", &Experiment::held_at_start_s,
         [](double v, C& c) { c.held.lasts = from_seconds(v); }},
    Axis{"held_at_start", "at", "of the highest", &Experiment::held_at_start,
         [](double v, C& c) { c.held.share = v; }},
    Axis{"clock_shown_off", "real clock lower by", "", &Experiment::clock_shown_off,
         [](double v, C& c) { c.work_stress.shown_off = v; }},
    Axis{"clock_step_mhz", "real clock in steps of", "MHz", &Experiment::clock_step_mhz,
         [](double v, C& c) { c.work_stress.step_mhz = v; }},
    Axis{"beyond_ratio", "performance lower by", "", &Experiment::beyond_ratio,
         [](double v, C& c) { c.work_stress.beyond_ratio = v; }},
    Axis{"gpus", "GPUs", "", &Experiment::gpus,
         [](double v, C& c) { c.gpus = static_cast<int>(v); }},
    Axis{"slow_gpu", "slower GPU", "", &Experiment::slow_gpu,
         [](double v, C& c) { c.slow_gpu = v; }},
};

// What a memory counter shows at a clock, of what it shows at the highest.
void overstate(std::optional<Fraction>& shown, std::optional<Fraction> full, double by) {
  if (shown && full) shown = Fraction(std::clamp(shown->value() + by * full->value(), 0.0, 1.0));
}

// How much of what is there from kBiasFrom down is there at a clock.
double in_full_from_bias(Megahertz clock, const SimChip& chip) {
  const double below = 1 - clock / chip.sm_clocks.back();
  return std::min(1.0, below / (1 - kBiasFrom));
}

// Shares of the SM's cycles: progress is their product with the clock.
constexpr std::optional<Fraction> Activity::*kPipes[] = {
    &Activity::integer, &Activity::tensor, &Activity::fp64, &Activity::fp32, &Activity::fp16};

void scale(std::optional<Fraction>& share, double by) {
  if (share) share = Fraction(std::clamp(share->value() * by, 0.0, 1.0));
}

// All that stands for progress.
void scale_progress(OperatingPoint& point, double by) {
  scale(point.memory_utilisation, by);
  scale(point.activity.dram, by);
  for (const auto pipe : kPipes) scale(point.activity.*pipe, by);
}

std::optional<Fraction> between(std::optional<Fraction> below, std::optional<Fraction> above,
                                double share) {
  if (!below || !above) return std::nullopt;
  return Fraction(below->value() + share * (above->value() - below->value()));
}

OperatingPoint between(const OperatingPoint& below, const OperatingPoint& above, double share) {
  OperatingPoint out = below;
  out.rate += share * (above.rate - below.rate);
  out.power += (above.power - below.power) * share;
  out.gpu_utilisation = between(below.gpu_utilisation, above.gpu_utilisation, share);
  out.memory_utilisation = between(below.memory_utilisation, above.memory_utilisation, share);
  for (const auto& [name, member] : activity_shares())
    out.activity.*member = between(below.activity.*member, above.activity.*member, share);
  return out;
}

// Of a phase at a clock that need not be one of the chip's.
OperatingPoint point_at(const Phase& phase, const SimChip& chip, Megahertz clock) {
  const auto& clocks = chip.sm_clocks;
  if (clock <= clocks.front()) return phase.points.front();
  if (clock >= clocks.back()) return phase.points.back();
  const auto above = static_cast<std::size_t>(
      std::upper_bound(clocks.begin(), clocks.end(), clock) - clocks.begin());
  const double share = (clock - clocks[above - 1]) / (clocks[above] - clocks[above - 1]);
  return between(phase.points[above - 1], phase.points[above], share);
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
      const double by = bias * in_full_from_bias(chip.sm_clocks[i], chip);
      overstate(phase.points[i].memory_utilisation, full.memory_utilisation, by);
      overstate(phase.points[i].activity.dram, full.activity.dram, by);
    }
  }
}

void lose_more(Workload& workload, double by, const SimChip& chip) {
  for (Phase& phase : workload.phases) {
    const double full = phase.points.back().rate;
    for (std::size_t i = 0; i < phase.points.size(); ++i) {
      OperatingPoint& point = phase.points[i];
      const double lost = by * full * in_full_from_bias(chip.sm_clocks[i], chip);
      const double kept = std::max(0.5, 1 - lost / point.rate);  // it goes on at the lowest, too
      point.rate *= kept;
      scale_progress(point, kept);
    }
  }
}

void follow_progress(Workload& workload, double share, const SimChip& chip) {
  for (Phase& phase : workload.phases) {
    const OperatingPoint full = phase.points.back();
    for (std::size_t i = 0; i < phase.points.size(); ++i) {
      OperatingPoint& point = phase.points[i];
      const double shows = 1 - share * (1 - point.rate / full.rate);
      const auto set = [](std::optional<Fraction>& here, std::optional<Fraction> there, double by) {
        here = there;
        scale(here, by);
      };
      set(point.memory_utilisation, full.memory_utilisation, shows);
      set(point.activity.dram, full.activity.dram, shows);
      for (const auto pipe : kPipes)
        set(point.activity.*pipe, full.activity.*pipe,
            shows * (chip.sm_clocks.back() / chip.sm_clocks[i]));
    }
  }
}

Megahertz real_clock(Megahertz shown, const SimChip& chip, double off, double step_mhz) {
  const Megahertz highest = chip.sm_clocks.back();
  if (shown >= highest) return highest;
  double clock = shown.value();
  if (step_mhz > 0)
    clock = highest.value() - std::ceil((highest.value() - clock) / step_mhz) * step_mhz;
  return Megahertz(clock * (1 - off));
}

void run_at_real_clocks(Workload& workload, double off, double step_mhz, const SimChip& chip) {
  for (Phase& phase : workload.phases) {
    std::vector<OperatingPoint> real;
    for (const Megahertz shown : chip.sm_clocks)
      real.push_back(point_at(phase, chip, real_clock(shown, chip, off, step_mhz)));
    phase.points = std::move(real);
  }
}

void apply_stress(Workload& workload, const WorkStress& stress, const SimChip& chip) {
  if (stress.beyond_ratio > 0) lose_more(workload, stress.beyond_ratio, chip);
  if (stress.counter_follows) follow_progress(workload, *stress.counter_follows, chip);
  overstate_memory(workload, stress.memory_bias, chip);
  if (stress.shown_off > 0 || stress.step_mhz > 0)
    run_at_real_clocks(workload, stress.shown_off, stress.step_mhz, chip);
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
