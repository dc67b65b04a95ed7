#include "govern/estimator.h"

#include <algorithm>

namespace derate {
namespace {

constexpr Celsius kThermalMargin{5};
// More than the power of a resting GPU changes by itself in the simulator. Not tested on real GPUs.
constexpr double kUnseenShare = 1.3;
constexpr Watts kUnseenWatts{10};
constexpr double kAnotherClock = 1.01;

// Whether these let a GPU at rest draw more than those.
bool are_looser(const LocksInForce& these, const LocksInForce& those) {
  const auto looser = [](std::optional<Megahertz> a, std::optional<Megahertz> b) {
    return b && (!a || *a > *b);
  };
  return looser(these.clock, those.clock) || looser(these.memory, those.memory);
}

}  // namespace

// A resting GPU draws more at a higher clock: the simulator's V100 47 W at 952 MHz and 66 W at
// 1530. Unseen work gets one, too, and is no rest.
void UnseenWork::rest(const Estimate& estimate, const LocksInForce& locks) {
  const Megahertz clock = estimate.sm_clock.value_or(Megahertz(0));
  if (are_looser(locks, locks_)) settled_ = estimate.time + kSettles;
  locks_ = locks;
  if (estimate.time < settled_ && !since_) rest_.reset();
  if (!rest_ || (!since_ && clock > kAnotherClock * rest_->clock)) rest_ = {*estimate.power, clock};
  rest_->least = std::min(rest_->least, *estimate.power);
  rest_->clock = std::min(rest_->clock, clock);
}

bool UnseenWork::is_there(const Estimate& estimate, const LocksInForce& locks) {
  if (!estimate.gpu_utilisation || !estimate.power) return false;
  if (estimate.gpu_utilisation->value() > 0 || estimate.launching) {
    *this = {};
    return false;
  }
  rest(estimate, locks);
  if (*estimate.power <= kUnseenShare * rest_->least + kUnseenWatts) {
    since_.reset();
    return false;
  }
  if (!since_) since_ = estimate.time;
  if (estimate.time - *since_ < kLongest) return true;
  rest_->least = *estimate.power;
  return false;
}

Estimator::Estimator(const SafetyRules& rules, const Capability& capability, bool as_published)
    : rules_(rules),
      as_published_(as_published),
      display_(capability.modes.display),
      hot_above_(rules.temperature_limit) {
  if (!hot_above_ && capability.slowdown_temperature)
    hot_above_ = *capability.slowdown_temperature - kThermalMargin;
}

// Whether a count of launches has grown of late.
bool Estimator::launching(const WorkStatus& work, Instant now) {
  const std::optional<Progress>& progress = work.progress;
  const bool launches = source_of(progress) == ProgressSource::launches;
  const std::optional<Progress>& last = last_launches_;
  if (launches && (!last || last->run != progress->run || last->done < progress->done))
    last_launches_ = progress;
  return launches && now - last_launches_->time < rules_.idle_after;
}

bool Estimator::idle(const Estimate& estimate) {
  const auto& utilisation = estimate.gpu_utilisation;
  const bool no_kernel = utilisation && utilisation->value() <= 0 && !estimate.launching;
  if (!no_kernel)
    idle_since_.reset();
  else if (!idle_since_)
    idle_since_ = estimate.time;
  return idle_since_ && estimate.time - *idle_since_ >= rules_.idle_after;
}

// Hot from the limit up, cool again 5 K below it.
bool Estimator::hot(const Sample& sample) {
  if (!sample.temperature || !hot_above_) return hot_;
  if (*sample.temperature >= *hot_above_) hot_ = true;
  if (*sample.temperature < *hot_above_ - kThermalMargin) hot_ = false;
  return hot_;
}

Estimate Estimator::estimate(const Reading& reading, const WorkStatus& work,
                             const LocksInForce& locks, Instant now) {
  Estimate out;
  out.time = now;
  out.requested_clock = locks.clock;
  out.work = work;
  if (!reading.newest) return out;
  const bool usable = reading.fresh && reading.age <= rules_.stale_after;
  out.freshness = reading.age > rules_.expire_after ? Freshness::expired
                  : usable                          ? Freshness::fresh
                                                    : Freshness::stale;
  const Sample& sample = *reading.newest;
  out.sm_clock = sample.sm_clock;
  out.memory_clock = sample.memory_clock;
  out.display = display_;
  if (sample.modes) out.display = sample.modes->display;
  out.gpu_utilisation = sample.gpu_utilisation;
  out.memory_utilisation = sample.memory_utilisation;
  // A trace may hold field 185 only: on Hopper it is what nvmlDeviceGetPowerUsage returns.
  out.power_usage = sample.power_usage ? sample.power_usage : sample.power_average;
  out.power = sample.power_instant ? sample.power_instant : out.power_usage;
  out.origins = reading.origins;
  if (!sample.power_usage) out.origins[Field::power_usage] = reading.origins[Field::power_average];
  if (!sample.power_instant) out.origins[Field::power_instant] = out.origins[Field::power_usage];
  if (reading.fresh) out.energy = sample.energy;
  out.throttle_reasons = sample.throttle_reasons;
  out.activity = sample.activity;
  out.tenants = sample.tenants;
  out.launching = launching(work, now);
  if (!as_published_ && unseen_.is_there(out, locks))
    out.gpu_utilisation = out.memory_utilisation = std::nullopt;
  out.idle = idle(out);
  out.hot = hot(sample);
  return out;
}

}  // namespace derate
