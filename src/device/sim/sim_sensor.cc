#include "device/sim/sim_sensor.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace derate {
namespace {

constexpr std::optional<Fraction> Activity::*kShareFields[] = {
    &Activity::graphics, &Activity::sm,     &Activity::occupancy,
    &Activity::integer,  &Activity::tensor, &Activity::dram,
    &Activity::fp64,     &Activity::fp32,   &Activity::fp16,
};

std::int64_t whole_steps(Duration length, Duration step) {
  return std::max<std::int64_t>(1, std::llround(seconds(length) / seconds(step)));
}

}  // namespace

SimSensors::SimSensors(const SensorSpec& spec, Duration step, std::uint64_t seed)
    : spec_(spec), step_(step), random_(seed) {
  Duration longest = std::max(spec.utilisation.window, spec.usage.window);
  if (spec.instant) longest = std::max(longest, spec.instant->window);
  if (spec.average) longest = std::max(longest, spec.average->window);
  if (spec.energy_sight) energy_sight_ = whole_steps(*spec.energy_sight, step);
  if (spec.energy_lag > Duration::zero()) energy_lag_ = whole_steps(spec.energy_lag, step);
  longest = std::max(longest, spec.energy_lag + spec.energy_sight.value_or(step));
  history_.resize(std::bit_ceil(static_cast<std::size_t>(whole_steps(longest, step)) + 1));
  utilisation_ = schedule(spec.utilisation.refresh, spec.utilisation.window);
  usage_ = schedule(spec.usage.refresh, spec.usage.window);
  if (spec.instant) instant_ = schedule(spec.instant->refresh, spec.instant->window);
  if (spec.average) average_ = schedule(spec.average->refresh, spec.average->window);
  energy_ = schedule(spec.energy_refresh, step);
  if (spec.activity_window) activity_ = schedule(*spec.activity_window, *spec.activity_window);
  activity_sums_.assign(std::size(kShareFields), 0);
  activity_counts_.assign(std::size(kShareFields), 0);
}

// Each counter has a phase of its own: nothing ties its refresh to a governor's tick.
SimSensors::Schedule SimSensors::schedule(Duration refresh, Duration window) {
  Schedule out{whole_steps(refresh, step_), whole_steps(window, step_), 0};
  out.next = 1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(out.every));
  return out;
}

bool SimSensors::due(Schedule& schedule) const {
  if (now_ < schedule.next) return false;
  schedule.next += schedule.every;
  return true;
}

double SimSensors::mean(double Sums::*quantity, const Schedule& schedule) const {
  const std::int64_t window = std::min(schedule.window, now_);
  const Sums& before = history_[static_cast<std::size_t>(now_ - window) & (history_.size() - 1)];
  return (total_.*quantity - before.*quantity) / static_cast<double>(window);
}

// A share that was not known throughout the window is not shown: no counter is made up.
std::optional<Fraction> SimSensors::quantised(double unknown, double mean_share) {
  if (unknown > 0) return std::nullopt;
  double points = mean_share * 100;
  // An idle GPU reads exactly 0: noise comes with work.
  if (points > 0) points += spec_.utilisation.noise_points * gauss_(random_);
  return percent(std::clamp(std::round(points), 0.0, 100.0));
}

Watts SimSensors::noisy_power(const Schedule& schedule, Watts noise) {
  const double watts = mean(&Sums::power, schedule) * spec_.power_gain;
  return Watts(std::max(0.0, watts + noise.value() * gauss_(random_)));
}

void SimSensors::begin_in(const OperatingPoint& point, Watts power) {
  shown_.gpu_utilisation = point.gpu_utilisation;
  shown_.memory_utilisation = point.memory_utilisation;
  shown_.power_usage = power * spec_.power_gain;
  if (spec_.instant) shown_.power_instant = shown_.power_usage;
  if (spec_.average) shown_.power_average = shown_.power_usage;
}

void SimSensors::step(const OperatingPoint& point, Watts power) {
  ++now_;
  total_.gpu += point.gpu_utilisation.value_or(Fraction(0)).value();
  total_.memory += point.memory_utilisation.value_or(Fraction(0)).value();
  total_.gpu_unknown += point.gpu_utilisation ? 0 : 1;
  total_.memory_unknown += point.memory_utilisation ? 0 : 1;
  total_.power += power.value();
  history_[static_cast<std::size_t>(now_) & (history_.size() - 1)] = total_;
  if (spec_.activity_window) accumulate_activity(point.activity);

  if (due(utilisation_)) renew_utilisation();
  if (due(usage_)) shown_.power_usage = noisy_power(usage_, spec_.usage.noise);
  if (spec_.instant && due(instant_))
    shown_.power_instant = noisy_power(instant_, spec_.instant->noise);
  if (spec_.average && due(average_))
    shown_.power_average = noisy_power(average_, spec_.average->noise);
  if (due(energy_)) count_energy();
}

// Of the power up to the end of that step.
double SimSensors::power_sum(std::int64_t step) const {
  return history_[static_cast<std::size_t>(std::max<std::int64_t>(0, step)) & (history_.size() - 1)]
      .power;
}

void SimSensors::count_energy() {
  const std::int64_t seen = now_ - energy_lag_;
  if (energy_sight_ > 0 && seen > 0) {
    const std::int64_t sight = std::min(energy_sight_, seen);
    const double mean = (power_sum(seen) - power_sum(seen - sight)) / static_cast<double>(sight);
    counted_ += mean * static_cast<double>(energy_.every);
  } else if (energy_sight_ == 0) {
    counted_ = power_sum(seen);
  }
  const double joules = counted_ * seconds(step_) * spec_.power_gain;
  shown_.energy = Joules(std::floor(joules * 1000) / 1000);  // the counter has whole millijoules
}

void SimSensors::renew_utilisation() {
  shown_.gpu_utilisation =
      quantised(mean(&Sums::gpu_unknown, utilisation_), mean(&Sums::gpu, utilisation_));
  shown_.memory_utilisation =
      quantised(mean(&Sums::memory_unknown, utilisation_), mean(&Sums::memory, utilisation_));
}

void SimSensors::accumulate_activity(const Activity& activity) {
  for (std::size_t i = 0; i < std::size(kShareFields); ++i) {
    const auto& share = activity.*kShareFields[i];
    if (!share) continue;
    ++activity_counts_[i];
    activity_sums_[i] += share->value();
  }
  if (due(activity_)) publish_activity();
}

// As for utilisation: not known throughout the window, not shown.
void SimSensors::publish_activity() {
  ++shown_.activity_window;
  for (std::size_t i = 0; i < std::size(kShareFields); ++i) {
    auto& share = shown_.activity.*kShareFields[i];
    share.reset();
    if (activity_counts_[i] >= activity_.every)
      share = Fraction(activity_sums_[i] / static_cast<double>(activity_counts_[i]));
    activity_sums_[i] = 0;
    activity_counts_[i] = 0;
  }
}

}  // namespace derate
