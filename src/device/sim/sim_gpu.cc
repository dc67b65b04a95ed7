#include "device/sim/sim_gpu.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr int kHeatSteps = 10;  // leakage follows a temperature that moves in tens of seconds

double lognormal_seconds(const LatencySpec& spec, double gauss) {
  if (spec.p99 <= spec.median) return seconds(spec.median);
  constexpr double kZ99 = 2.3263;  // 99th percentile of the standard normal
  const double sigma = std::log(seconds(spec.p99) / seconds(spec.median)) / kZ99;
  return seconds(spec.median) * std::exp(sigma * gauss);
}

}  // namespace

SimGpu::SimGpu(const SimChip& chip, const SimOptions& options)
    : chip_(chip),
      options_(options),
      sensors_(chip.sensors, options.step, options.seed ^ 0x9e3779b97f4a7c15ULL),
      random_(options.seed),
      step_s_(seconds(options.step)),
      thermal_cap_(chip.sm_clocks.size() - 1),
      temperature_(chip.thermal.ambient.value()),
      heat_decay_(std::exp(-seconds(options.step) / seconds(chip.thermal.time_constant))) {
  power_limit_ = chip.power_limits.factory;
  const double gain = 1 + options.voltage_spread * gauss_(random_);
  voltage_gain2_ = gain * gain;
  for (const Megahertz clock : chip.sm_clocks) {
    OperatingPoint point;
    point.power = Watts(chip.idle_power.at(clock));
    point.gpu_utilisation = point.memory_utilisation = Fraction(0);
    if (chip.sensors.activity_window)
      for (auto share : {&Activity::graphics, &Activity::sm, &Activity::dram})
        point.activity.*share = Fraction(0);
    idle_.push_back(point);
    voltage_.push_back(chip.voltage.at(clock));
  }
  asked_ = granted_ = clock_ = index_of(chip.unused_clock);
  power_ = idle_[clock_].power;
  temperature_ += chip.thermal.kelvin_per_watt * power_.value();
  sensors_.begin_in(idle_[clock_], power_);
}

std::size_t SimGpu::index_of(Megahertz clock) const {
  const auto& clocks = chip_.sm_clocks;
  const auto at = std::lower_bound(clocks.begin(), clocks.end(), clock);
  return at == clocks.end() ? clocks.size() - 1 : static_cast<std::size_t>(at - clocks.begin());
}

// Work boosts to the top of what is allowed; without a context the GPU falls to the bottom.
std::size_t SimGpu::wanted_clock() const {
  const std::size_t top = locked_highest_.value_or(chip_.sm_clocks.size() - 1);
  const std::size_t bottom = locked_lowest_.value_or(index_of(chip_.unused_clock));
  return busy() ? top : bottom;
}

void SimGpu::retarget() {
  const std::size_t wanted = wanted_clock();
  if (wanted == asked_) return;
  asked_ = wanted;
  switch_at_ = now_ + from_seconds(lognormal_seconds(chip_.latency, gauss_(random_)));
  switching_ = true;
}

void SimGpu::lock(Megahertz lowest, Megahertz highest) {
  locked_lowest_ = index_of(lowest);
  locked_highest_ = index_of(highest);
  retarget();
}

void SimGpu::unlock() {
  locked_lowest_.reset();
  locked_highest_.reset();
  retarget();
}

void SimGpu::start(Workload workload, Duration work) {
  job_ = SimJob{std::move(workload), work, 0, now_, std::nullopt, energy(), {}};
  phase_ = 0;
  phase_done_ = phase_age_ = gap_left_ = 0;
  retarget();
}

void SimGpu::stop() {
  if (busy()) {
    job_->finished = now_;
    job_->energy_at_finish = energy();
  }
  retarget();
}

void SimGpu::advance_to(Instant now) {
  while (now_ + options_.step <= now) step();
}

void SimGpu::apply_pending() {
  if (!switching_ || now_ < switch_at_) return;
  granted_ = asked_;
  switching_ = false;
}

const OperatingPoint& SimGpu::point_at(std::size_t clock) const {
  if (!busy() || gap_left_ > 0) return idle_[clock];
  return job_->workload.phases[phase_].points[clock];
}

Watts SimGpu::power_at(std::size_t clock) const {
  const Watts tabled = point_at(clock).power;
  if (!busy() || job_->workload.tabled) return tabled;
  const Phase& phase = job_->workload.phases[phase_];
  const Watts idle = idle_[clock].power;
  const double drift = 1 + phase.power_drift_per_minute * phase_age_ / 60;
  return idle + (tabled - idle) * (voltage_gain2_ * drift) + Watts(leakage_ * voltage_[clock]);
}

// The regulator: the highest clock whose power fits, and now and then the next one up, so that the
// mean meets the limit (a real H200 holds 598.3 W of 600).
std::size_t SimGpu::regulated(std::size_t wanted) {
  throttle_ = busy() ? 0 : throttle::kGpuIdle;
  std::size_t clock = wanted;
  const Watts limit = power_limit_;
  if (power_at(clock) > limit || over_limit_ > 0) {
    while (clock > 0 && power_at(clock) > limit) --clock;
    if (clock < wanted && over_limit_ < 0) ++clock;
    over_limit_ = std::clamp(over_limit_ + (power_at(clock) - limit).value() * step_s_, -1.0, 1.0);
    if (clock < wanted) throttle_ |= throttle::kSwPowerCap;
  }
  if (clock > thermal_cap_) {
    clock = thermal_cap_;
    throttle_ |= throttle::kHwThermalSlowdown;
  }
  return clock;
}

void SimGpu::heat() {
  const ThermalSpec& thermal = chip_.thermal;
  const double settled = thermal.ambient.value() + thermal.kelvin_per_watt * power_.value();
  temperature_ = settled + (temperature_ - settled) * heat_decay_;
  if (heat_in_-- > 0) return;
  heat_in_ = kHeatSteps - 1;
  const double above = temperature_ - thermal.reference.value();
  leakage_ = thermal.leakage.value() * (std::exp(thermal.leakage_per_kelvin * above) - 1);
  if (temperature_ > thermal.slowdown.value())
    thermal_cap_ -= thermal_cap_ > 0 ? 1 : 0;
  else if (thermal_cap_ + 1 < chip_.sm_clocks.size() && temperature_ < thermal.slowdown.value() - 2)
    ++thermal_cap_;
}

void SimGpu::work(double rate) {
  const Phase& phase = job_->workload.phases[phase_];
  if (gap_left_ > 0) {
    gap_left_ -= step_s_;
    return;
  }
  phase_age_ += step_s_;
  double done = rate * step_s_;
  const double total = seconds(job_->work);
  if (total > 0 && job_->done + done >= total) {
    // The job ends inside this step: its time and energy are cut there.
    const double share = (total - job_->done) / done;
    done = total - job_->done;
    job_->finished = now_ + from_seconds(step_s_ * share);
    job_->energy_at_finish = Joules(joules_ + power_.value() * step_s_ * share);
  }
  job_->done += done;
  work_done_ += done;
  phase_done_ += done;
  if (phase.work > Duration::zero() && phase_done_ >= seconds(phase.work)) {
    gap_left_ = seconds(phase.gap);
    phase_ = (phase_ + 1) % job_->workload.phases.size();
    phase_done_ = phase_age_ = 0;
  }
}

void SimGpu::step() {
  apply_pending();
  clock_ = regulated(granted_);
  const OperatingPoint& point = point_at(clock_);
  power_ = power_at(clock_);
  const bool was_busy = busy();
  sensors_.step(point, power_);
  if (was_busy) work(point.rate);
  joules_ += power_.value() * step_s_;
  heat();
  now_ += options_.step;
  if (was_busy && !busy()) retarget();
}

}  // namespace derate
