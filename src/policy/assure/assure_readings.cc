#include "policy/assure/assure_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

constexpr Duration kAfterWindow = std::chrono::milliseconds(150);
// Of two readings at one clock: logs of power, shares of memory.
constexpr double kPartedPower = 0.1, kPartedMemory = 0.25;
constexpr double kPowerReading = 0.03;  // relative sd of a few readings' mean
constexpr double kWobble = 0.5;
// Beats that come less often are no signal: a clock would be held for long to learn what it costs.
constexpr Duration kSeldom = std::chrono::milliseconds(2500);

SourceReading utilisation_of(const Estimate& estimate) {
  SourceReading out;
  if (estimate.gpu_utilisation) out[0] = estimate.gpu_utilisation->value();
  if (estimate.memory_utilisation) out[1] = estimate.memory_utilisation->value();
  return out;
}

SourceReading activity_of(const Estimate& estimate) {
  SourceReading out;
  std::size_t at = 0;
  for (const ActivityShare& share : activity_shares()) {
    if (const auto& value = estimate.activity.*share.member) out[at] = value->value();
    ++at;
  }
  return out;
}

}  // namespace

// The clock really held counts, not the one asked for; and whatever moved it.
void Assure::follow_clock(const Estimate& estimate) {
  if (!estimate.sm_clock) return;
  // Long after the last request it is the GPU that moves it, under its power limit: a look is then
  // of the mean.
  const bool ours = estimate.time - asked_at_ < options_.settle;
  const double apart = held_ > Megahertz(0) ? std::abs(std::log(*estimate.sm_clock / held_)) : 1;
  if (apart < (ours ? kOneClock : kWobble)) return;
  held_ = *estimate.sm_clock;
  held_since_ = clock_since_ = estimate.time;
  utilisation_still_.moved();
  activity_still_.moved();
  drop_readings();
  watch_.jumps.clear();
  energy_.reset();
}

// Whether no counter tells anything.
bool Assure::counters_stand(const Estimate& estimate) {
  (void)utilisation_still_.add(estimate.time, utilisation_of(estimate));
  (void)activity_still_.add(estimate.time, activity_of(estimate));
  return utilisation_still_.stands() && (activity_still_.stands() || !activity_still_.shows());
}

// At a job's start the utilisation rises over the sensors' window: how long it takes is how long a
// change of the clock takes to show. Work that is slow to start makes it seem longer: the safe
// side.
bool Assure::rising(const Estimate& estimate) {
  const double power = estimate.power.value_or(Watts(0)).value();
  if (power > 1.1 * peak_power_) {
    peak_power_ = power;
    power_window_ = estimate.time - began_;
  }
  const double now = estimate.gpu_utilisation->value();
  if (now <= 1.1 * peak_ + 0.03) return false;
  peak_ = now;
  return true;
}

// What the work says, or what it launches.
void Assure::hear(const Estimate& estimate) {
  const std::optional<Beat>& beat = estimate.work.beat;
  const bool fresh = beat && estimate.time - beat->time <= kSeldom;
  told_ = fresh && beat->unsteadiness;
  if (beat != beats_.last()) account_.hear_beat();
  beat_ = beats_.rate(beat, told_ ? clock_since_ : held_since_);
  hears_ = fresh && beats_.interval() <= kSeldom;
}

ReadingTick Assure::read(const Estimate& estimate, bool of_this_phase) {
  newest_ = read_signals(estimate, options_.highest);
  for (std::size_t i = 0; i < kSignals; ++i) {
    const bool utilisation = static_cast<Signal>(i) == Signal::memory;
    if ((utilisation ? utilisation_still_ : activity_still_).stands()) newest_[i].reset();
  }
  watch_.jumped = !watch_.mixed && !told_ && watch_.jumps.add(estimate, newest_);
  // Work that speaks for itself is not judged by counters; that it changes they show all the same.
  if (belief_.phase && speaks(*belief_.phase)) newest_ = {};
  if (hears_) newest_[static_cast<std::size_t>(Signal::beat)] = beat_;
  ReadingTick tick{.signals = newest_, .clock = estimate.sm_clock->value(), .heard = hears_};
  if (of_this_phase && *estimate.gpu_utilisation > Fraction(0))
    tick.gpu_utilisation = estimate.gpu_utilisation->value();
  tick.may_wait = estimate.work.may_wait;
  tick.capped = (estimate.throttle_reasons.value_or(0) & throttle::kSwPowerCap) != 0;
  const Duration power_window = std::min(power_window_ + kAfterWindow, options_.settle);
  if (estimate.power && estimate.time - held_since_ >= power_window)
    tick.power = estimate.power->value();
  return tick;
}

void Assure::take(const Estimate& estimate) {
  newest_ = {};
  watch_.jumped = false;
  if (!estimate.sm_clock) return;
  const bool stand = counters_stand(estimate) && !hears_;
  if (stand && !stood_) drop_readings();  // the last of it stood already
  stood_ = stand;
  // What rises after it rested is other work.
  const bool rested = look_.clock.count() >= kFewest;
  const bool starting = stage_ == Stage::reference && !belief_.phase && !watch_.mixed && !rested;
  if (starting && estimate.time - began_ < options_.settle && rising(estimate)) {
    window_ = estimate.time - began_;
    held_since_ = std::max(held_since_, estimate.time - window_);  // a clock may have come later
    drop_readings();
    watch_.jumps.clear();
    return;
  }
  const Duration settled = std::min(window_ + kAfterWindow, options_.settle);
  const bool counters_settled = estimate.time - held_since_ >= settled;
  // A window of launches is of its phase from the beginning.
  if (!counters_settled && !(told_ && estimate.time - clock_since_ >= settled)) return;
  if (stand) {
    watch_.jumped = !watch_.mixed && watch_.jumps.add_power(estimate);
    return;
  }
  ReadingTick tick = read(estimate, counters_settled);
  if (other_work(tick)) drop_readings();
  held_back_.push_back(std::move(tick));
  for (; held_back_.size() > (watch_.restless ? doubtful() : 0); held_back_.pop_front()) {
    look_.add(held_back_.front(), options_.highest);
    in_look_.push_back(held_back_.front());
  }
}

// At the reference, before anything is known: too few readings for the watch to tell two phases
// apart would make one that is neither. Only once a visit: work whose power never rests has one
// phase all the same.
bool Assure::other_work(const ReadingTick& tick) {
  const ReadingTick* before = !held_back_.empty() ? &held_back_.back()
                              : !in_look_.empty() ? &in_look_.back()
                                                  : nullptr;
  const bool few = in_look_.size() + held_back_.size() < kFewest;
  if (stage_ != Stage::reference || belief_.phase || since_ == parted_ || before == nullptr || !few)
    return false;
  bool apart = tick.power && before->power &&
               std::abs(std::log(*tick.power / *before->power)) > kPartedPower;
  for (const Signal signal : {Signal::memory, Signal::dram}) {
    const auto& now = tick.signals[static_cast<std::size_t>(signal)];
    const auto& then = before->signals[static_cast<std::size_t>(signal)];
    apart |= now && then && std::abs(*now - *then) > kPartedMemory;
  }
  if (apart) parted_ = since_;
  return apart;
}

// How many of the newest readings may be of the next phase, before an alarm tells.
std::size_t Assure::doubtful() const {
  if (told_) return 1;  // a window's last part, which its kernels do not show
  return 2 + static_cast<std::size_t>(seconds(window_) / options_.tick);
}

// Means from the energy counter, over a second at least; where there is none, flush() takes power
// readings.
void Assure::learn_power(const Estimate& estimate) {
  if (estimate.energy) energy_counter_ = true;
  if (!belief_.phase || !estimate.energy || estimate.time - held_since_ < window_) return;
  const double x = options_.position(held_);
  if (energy_) {
    const double span = seconds(estimate.time - energy_->time);
    if (span < 1) return;
    // The counter moves every 0.1 s.
    const Watts mean = (*estimate.energy - energy_->energy) / from_seconds(span);
    const double variance = 0.003 * 0.003 + 0.1 * 0.1 / 3 / (span * span);
    belief_.phase->power.observe(x, mean, variance);
    prospects_.clear();
    meter(*belief_.phase, estimate.time, x, mean, variance);
  }
  energy_ = {estimate.time, *estimate.energy};
}

// Work that speaks is not known before it has spoken of the present clock: twice.
bool Assure::awaits_beat() const {
  return (belief_.phase ? speaks(*belief_.phase) : hears_) &&
         look_.signals[static_cast<std::size_t>(Signal::beat)].count() == 0;
}

// Of the counters that tell something; where none does, more readings would not either.
bool Assure::enough(double relative_sd) const {
  if (look_.clock.count() < kFewest || awaits_beat()) return false;
  const auto known = [&](Signal signal) {
    const Readings& readings = look_.signals[static_cast<std::size_t>(signal)];
    return readings.count() == 0 || relative_variance(look_, signal) <= relative_sd * relative_sd;
  };
  const std::vector<Signal> signals =
      belief_.phase ? belief_.phase->signals
                    : informative_signals(look_, options_.highest, belief_.priors);
  return std::all_of(signals.begin(), signals.end(), known);
}

void Assure::drop_readings() {
  look_.clear();
  in_look_.clear();
  held_back_.clear();
}

// Readings that may be another phase's already teach nothing: the watch will tell.
void Assure::flush() {
  prospects_.clear();
  if (watch_.mixed || counters_fit(*belief_.phase, look_)) {
    learn(*belief_.phase, look_, last_.value_or(Instant{}));
    // A visit to a phase that speaks may be too short for the energy counter.
    const bool metered =
        energy_counter_ &&
        (!speaks(*belief_.phase) || belief_.phase->power.power(look_.x).sd <= kPowerReading);
    if (!metered && look_.power.count() > 0)
      belief_.phase->power.observe(look_.x, Watts(look_.power.mean()),
                                   kPowerReading * kPowerReading);
  }
  look_.clear();
  in_look_.clear();
}

// Innovations that drift: another phase.
bool Assure::changed(const Estimate& estimate) {
  if (!belief_.phase || watch_.mixed) return false;
  if (watch_.jumped) return true;
  if (estimate.work.phase != belief_.phase->name) return true;
  // What was learned by beats says nothing of counters.
  if (speaks(*belief_.phase) && !hears_) {
    late_beats_ = LateBeats::none;
    return true;
  }
  return watch_.drifts(*belief_.phase, look_, newest_);
}

}  // namespace derate
