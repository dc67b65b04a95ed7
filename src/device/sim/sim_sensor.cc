#include "device/sim/sim_sensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace derate {
namespace {

// Streams of noise that belong to no schedule.
constexpr std::uint64_t kGlitchStream = 1000, kWanderStream = 1100, kActivityStream = 1200,
                        kBlankStream = 1300;

constexpr Duration kWanderPeriod = std::chrono::seconds(60);

// A glitch of GPM's DRAM share on an H200: off by so much, up or down; the next window makes up for
// a part of it (docs/sensors.md).
constexpr double kLeastGlitch = 0.19, kMostGlitch = 0.51, kMadeUp = 0.5;

std::int64_t whole_steps(Duration length, Duration step) {
  return std::max<std::int64_t>(1, std::llround(seconds(length) / seconds(step)));
}

// SplitMix64 (Steele, Lea, Flood 2014) of a place in a stream.
std::uint64_t bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t place) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (place + 1) + 0xd1342543de82ef95ULL * stream;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// In (0, 1).
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t place) {
  return (static_cast<double>(bits(seed, stream, place) >> 11) + 0.5) * 0x1p-53;
}

// A standard normal draw (Box and Muller) that belongs to a renewal: the same whoever reads it, and
// how often; and nobody pays for what nobody reads.
double gauss(std::uint64_t seed, std::uint64_t stream, std::int64_t renewal) {
  const auto place = 2 * static_cast<std::uint64_t>(renewal);
  return std::sqrt(-2 * std::log(uniform(seed, stream, place))) *
         std::cos(2 * std::numbers::pi * uniform(seed, stream, place + 1));
}

// The newest renewal up to `now`; empty before the first.
template <class Schedule>
std::optional<std::int64_t> newest(const Schedule& schedule, std::int64_t now) {
  if (now < schedule.first) return std::nullopt;
  return now - (now - schedule.first) % schedule.every;
}

// A V100's applications were measured without these counters: assumed are the utilisation, and of
// DRAM the memory utilisation by the factor that an A100 and an H200 show.
Activity dcgm_activity(const OperatingPoint& point) {
  constexpr double kMemoryFactor = 1.27;
  Activity out = point.activity;
  if (!out.graphics) out.graphics = point.gpu_utilisation;
  if (!out.dram && point.memory_utilisation)
    out.dram = Fraction(point.memory_utilisation->value() / kMemoryFactor);
  return out;
}

}  // namespace

// Of the two that utilisation has.
struct SimSensors::Counter {
  double Sums::*sum;
  double Sums::*unknown;
  std::uint64_t stream;
};

SimSensors::SimSensors(const SensorSpec& spec, Duration step, std::uint64_t seed)
    : spec_(spec), step_(step), seed_(bits(seed, 0, 0)) {
  const auto scheduled = [&](const auto& sensor) {
    return schedule(sensor.refresh, sensor.window, sensor.lag);
  };
  utilisation_ = scheduled(spec.utilisation);
  usage_ = scheduled(spec.usage);
  if (spec.instant) instant_ = scheduled(*spec.instant);
  if (spec.average) average_ = scheduled(*spec.average);
  energy_ = schedule(spec.energy_refresh, step);
  if (spec.activity_window) activity_ = schedule(*spec.activity_window, *spec.activity_window);
  if (spec.activity_lag > Duration::zero()) activity_lag_ = whole_steps(spec.activity_lag, step);
  if (spec.energy_sight) energy_sight_ = whole_steps(*spec.energy_sight, step);
  if (spec.energy_lag > Duration::zero()) energy_lag_ = whole_steps(spec.energy_lag, step);
  if (spec.frozen.lasts > Duration::zero() && spec.frozen.every > Duration::zero()) {
    frozen_ = whole_steps(spec.frozen.lasts, step);
    frozen_every_ = whole_steps(spec.frozen.every, step);
    frozen_phase_ = static_cast<std::int64_t>(bits(seed_, ++streams_, 0) %
                                              static_cast<std::uint64_t>(frozen_every_));
  }
  std::int64_t longest = energy_.every + energy_lag_ + std::max<std::int64_t>(1, energy_sight_);
  for (const Schedule* each : {&utilisation_, &usage_, &instant_, &average_})
    longest = std::max(longest, each->every + each->window + each->lag);
  history_.resize(std::bit_ceil(static_cast<std::size_t>(longest + frozen_) + 1));
  activity_sums_.assign(activity_shares().size(), 0);
  activity_counts_.assign(activity_shares().size(), 0);
}

// Each counter has a phase of its own: nothing ties its refresh to a governor's tick.
SimSensors::Schedule SimSensors::schedule(Duration refresh, Duration window, Duration lag) {
  Schedule out{whole_steps(refresh, step_), whole_steps(window, step_), 0, 2 * ++streams_};
  const std::uint64_t phase = bits(seed_, out.stream, 0) % static_cast<std::uint64_t>(out.every);
  out.first = 1 + static_cast<std::int64_t>(phase);
  if (lag > Duration::zero()) out.lag = whole_steps(lag, step_);
  return out;
}

const SimSensors::Sums& SimSensors::sums_at(std::int64_t step) const {
  return history_[static_cast<std::size_t>(step) & (history_.size() - 1)];
}

// Counters that stand still show the time at which they stopped.
std::int64_t SimSensors::seen_now() const {
  if (frozen_ == 0) return now_;
  const std::int64_t into = (now_ + frozen_phase_) % frozen_every_;
  return into < frozen_ ? std::max<std::int64_t>(0, now_ - into) : now_;
}

double SimSensors::mean(double Sums::*quantity, const Schedule& schedule,
                        std::int64_t renewal) const {
  const std::int64_t end = renewal - schedule.lag, window = std::min(schedule.window, end);
  return (sums_at(end).*quantity - sums_at(end - window).*quantity) / static_cast<double>(window);
}

// What a counter shows of what is true: its gain, and how that wanders.
double SimSensors::gain_at(std::int64_t step, std::uint64_t stream) const {
  if (spec_.counter_wander <= 0) return spec_.counter_gain;
  const double turns = static_cast<double>(step) * seconds(step_) / seconds(kWanderPeriod) +
                       uniform(seed_, kWanderStream, stream);
  return spec_.counter_gain * (1 + spec_.counter_wander * std::sin(2 * std::numbers::pi * turns));
}

// A share that was not known throughout the window is not shown: no counter is made up.
std::optional<Fraction> SimSensors::utilisation(const Counter& counter,
                                                std::optional<Fraction> before) const {
  const auto renewal = newest(utilisation_, seen_now());
  if (!renewal || *renewal <= utilisation_.lag) return before;
  if (mean(counter.unknown, utilisation_, *renewal) > 0) return std::nullopt;
  double points = mean(counter.sum, utilisation_, *renewal) * 100;
  // An idle GPU reads exactly 0: noise comes with work.
  if (points > 0) {
    points *= gain_at(*renewal, counter.stream);
    if (spec_.utilisation.noise_points > 0)
      points += spec_.utilisation.noise_points * gauss(seed_, counter.stream, *renewal);
  }
  const double step = spec_.utilisation.step_points;
  return percent(std::clamp(std::round(points / step) * step, 0.0, 100.0));
}

std::optional<Fraction> SimSensors::gpu_utilisation() const {
  if (!spec_.utilisation.gpu) return std::nullopt;
  return utilisation({&Sums::gpu, &Sums::gpu_unknown, utilisation_.stream}, begun_.gpu_utilisation);
}

std::optional<Fraction> SimSensors::memory_utilisation() const {
  if (!spec_.utilisation.memory) return std::nullopt;
  return utilisation({&Sums::memory, &Sums::memory_unknown, utilisation_.stream + 1},
                     begun_.memory_utilisation);
}

std::optional<Watts> SimSensors::power(const Schedule& schedule,
                                       const PowerSensorSpec& spec) const {
  const auto renewal = newest(schedule, now_);
  if (!renewal || *renewal <= schedule.lag) return begun_.power_usage;
  double watts = mean(&Sums::power, schedule, *renewal) * spec_.power_gain;
  const double noise = std::hypot(spec.noise.value(), spec.noise_share * watts);
  if (noise > 0) watts = std::max(0.0, watts + noise * gauss(seed_, schedule.stream, *renewal));
  const double step = spec.step.value();
  return Watts(step > 0 ? std::round(watts / step) * step : watts);
}

void SimSensors::begin_in(const OperatingPoint& point, Watts power) {
  begun_.gpu_utilisation = point.gpu_utilisation;
  begun_.memory_utilisation = point.memory_utilisation;
  begun_.power_usage = power * spec_.power_gain;
}

void SimSensors::step(const OperatingPoint& point, Watts power) {
  ++now_;
  total_.gpu += point.gpu_utilisation.value_or(Fraction(0)).value();
  total_.memory += point.memory_utilisation.value_or(Fraction(0)).value();
  total_.gpu_unknown += point.gpu_utilisation ? 0 : 1;
  total_.memory_unknown += point.memory_utilisation ? 0 : 1;
  total_.power += power.value();
  history_[static_cast<std::size_t>(now_) & (history_.size() - 1)] = total_;
  if (spec_.activity_window)
    accumulate_activity(spec_.activity_by_dcgm ? dcgm_activity(point) : point.activity);
  if (energy_sight_ > 0) count_energy();
}

// Of the power up to the end of that step.
double SimSensors::power_sum(std::int64_t step) const {
  return sums_at(std::max<std::int64_t>(0, step)).power;
}

void SimSensors::count_energy() {
  if (newest(energy_, now_) != now_) return;
  const std::int64_t seen = now_ - energy_lag_;
  if (seen <= 0) return;
  const std::int64_t sight = std::min(energy_sight_, seen);
  const double mean = (power_sum(seen) - power_sum(seen - sight)) / static_cast<double>(sight);
  counted_ += mean * static_cast<double>(energy_.every);
}

Joules SimSensors::energy() const {
  double counted = counted_;
  if (energy_sight_ == 0)
    if (const auto renewal = newest(energy_, now_)) counted = power_sum(*renewal - energy_lag_);
  const double joules = counted * seconds(step_) * spec_.power_gain;
  return Joules(std::floor(joules * 1000) / 1000);  // the counter has whole millijoules
}

SimSensors::Shown SimSensors::shown() const {
  Shown out;
  out.gpu_utilisation = gpu_utilisation();
  out.memory_utilisation = memory_utilisation();
  out.power_usage = power(usage_, spec_.usage);
  if (spec_.instant) out.power_instant = power(instant_, *spec_.instant);
  if (spec_.average) out.power_average = power(average_, *spec_.average);
  out.energy = energy();
  out.activity = activity_shown_;
  out.activity_window = activity_shown_window_;
  return out;
}

void SimSensors::accumulate_activity(const Activity& activity) {
  const std::span<const ActivityShare> shares = activity_shares();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto& share = activity.*shares[i].member;
    if (!share || !shows(shares[i])) continue;
    ++activity_counts_[i];
    activity_sums_[i] += share->value();
  }
  if (newest(activity_, now_) == now_) make_activity();
  publish_activity();
}

void SimSensors::publish_activity() {
  while (!activity_late_.empty() && activity_late_.front().first <= now_) {
    activity_shown_ = activity_late_.front().second;
    ++activity_shown_window_;
    activity_late_.pop_front();
  }
}

// Of DCGM's fields, those that fit one pass on an A100 (EAR's table of its counters).
bool SimSensors::shows(const ActivityShare& share) const {
  if (!spec_.activity_by_dcgm) return true;
  constexpr std::optional<Fraction> Activity::*kRead[] = {&Activity::graphics,  &Activity::sm,
                                                          &Activity::occupancy, &Activity::tensor,
                                                          &Activity::dram,      &Activity::fp64};
  return std::find(std::begin(kRead), std::end(kRead), share.member) != std::end(kRead);
}

// The factor by which this window's DRAM share is off.
double SimSensors::glitch() {
  if (spec_.activity_glitches <= 0) return 1;
  const auto place = static_cast<std::uint64_t>(activity_window_);
  const double made_up = -kMadeUp * glitch_;
  glitch_ = 0;
  if (uniform(seed_, kGlitchStream, place) < spec_.activity_glitches) {
    const double size =
        kLeastGlitch + (kMostGlitch - kLeastGlitch) * uniform(seed_, kGlitchStream + 1, place);
    glitch_ = uniform(seed_, kGlitchStream + 2, place) < 0.5 ? -size : size;
  }
  return 1 + glitch_ + made_up;
}

// As for utilisation: not known throughout the window, not shown.
void SimSensors::make_activity() {
  ++activity_window_;
  const bool stands = seen_now() < now_;
  const double dram = glitch();
  for (std::size_t i = 0; i < activity_shares().size(); ++i) {
    auto& share = activity_made_.*activity_shares()[i].member;
    if (!stands) {
      share.reset();
      if (activity_counts_[i] >= activity_.every) {
        double mean = activity_sums_[i] / static_cast<double>(activity_counts_[i]);
        const std::uint64_t stream = kActivityStream + i;
        mean *= gain_at(now_, stream);
        if (spec_.activity_noise > 0)
          mean *= 1 + spec_.activity_noise * gauss(seed_, stream, activity_window_);
        if (activity_shares()[i].member == &Activity::dram) mean *= dram;
        share = Fraction(std::clamp(mean, 0.0, 1.0));
      }
    }
    activity_sums_[i] = 0;
    activity_counts_[i] = 0;
  }
  const bool blank = spec_.activity_blank > 0 &&
                     uniform(seed_, kBlankStream, static_cast<std::uint64_t>(activity_window_)) <
                         spec_.activity_blank;
  activity_late_.emplace_back(now_ + activity_lag_, blank ? Activity{} : activity_made_);
}

}  // namespace derate
