#include "govern/actuator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/clock_control.h"

namespace derate {
namespace {

using Outcome = Actuation::Outcome;

constexpr Duration kPowerCheckEvery = std::chrono::seconds(1);
// A GPU without a reading for this long may have been reset; a single reading may be lost at any
// time.
constexpr Duration kOutOfReach = std::chrono::seconds(1);

// Drivers keep whole milliwatts, some of them whole watts.
bool same_power(Watts a, Watts b) { return std::abs((a - b).value()) < 1; }

std::optional<Watts> power_of(const std::optional<KnobValue>& value) {
  return value ? std::optional(Watts(value->highest)) : std::nullopt;
}

}  // namespace

Actuator::Actuator(ClockControl* control, ActuatorOptions options)
    : control_(control),
      options_(std::move(options)),
      watch_(options_.supported, options_.minimum_is_a_request) {
  // An entry that was written to already is one that somebody hands on.
  found_known_ = entry().any_written();
  clock_known_ = !entry().is_written(kClockLock);
  power_known_ = !entry().is_written(kPowerLimit);
  memory_known_ = !entry().is_written(kMemoryLock);
}

Actuator::~Actuator() { (void)restore().ok(); }

Actuation Actuator::plain(Outcome outcome, const std::string& error) const {
  Actuation out{outcome, in_force_.clock, error.empty() ? ignored_ : error};
  out.power_limit = in_force_.power;
  out.memory_lock = in_force_.memory;
  out.drifts = drifts_;
  return out;
}

void Actuator::aim(const Decision& decision) {
  if (decision.kind == Decision::Kind::set) target_.clock = decision.clock;
  if (decision.kind == Decision::Kind::cap) target_ = {std::nullopt, decision.power_limit, {}};
  if (decision.kind == Decision::Kind::release) target_ = {};
  if (decision.kind == Decision::Kind::unlock) target_.clock.reset();
  if (decision.kind == Decision::Kind::hold) return;
  const bool parks = decision.parks_memory && !memory_refused_;
  target_.memory = parks ? options_.parked_memory : std::nullopt;
}

Actuation Actuator::apply(const Decision& decision, const Estimate& estimate) {
  const bool fresh = estimate.freshness == Freshness::fresh;
  aim(decision);
  // A rule that holds does not keep the memory of work parked.
  if (fresh && !estimate.idle) target_.memory.reset();
  if (control_ == nullptr) {
    if (target_ == in_force_) return plain(Outcome::nothing);
    in_force_ = target_;
    return plain(Outcome::shadow);
  }
  if (!yielded_to_.empty()) return plain(Outcome::yielded, yielded_to_);
  const bool back = fresh && blind_;
  blind_ = !fresh;
  // A GPU that was out of reach may have been reset. Its settings are written again, unless the
  // drift rule yields to other tools.
  if (back && estimate.time - fresh_at_ >= kOutOfReach && options_.on_drift != DriftRule::yield)
    doubt_settings();
  if (fresh) fresh_at_ = estimate.time;
  if (auto contradicted = watch(estimate)) return *std::move(contradicted);
  if (target_ == in_force_ && clock_known_ && power_known_ && memory_known_)
    return plain(Outcome::nothing);
  // Another clock now would hide that another tool has changed ours.
  if (options_.on_drift != DriftRule::ignore && target_.clock && clock_known_ &&
      watch_.in_doubt(estimate.time))
    return plain(Outcome::nothing);
  // If a GPU answers again, failures from before do not delay its writes.
  const bool slow = in_force_.memory && !target_.memory;  // work waits for its memory
  if (!failure_.empty() && !back && !slow && estimate.time < retry_at_)
    return plain(Outcome::waiting, failure_);
  return write(estimate.time);
}

void Actuator::doubt_settings() {
  if (in_force_.clock) clock_known_ = false;
  if (in_force_.power) power_known_ = false;
  if (in_force_.memory) memory_known_ = false;
}

std::optional<Actuation> Actuator::watch(const Estimate& estimate) {
  if (auto contradicted = clock_contradicted(estimate)) return contradicted;
  return power_contradicted(estimate);
}

std::optional<Actuation> Actuator::clock_contradicted(const Estimate& estimate) {
  // A low memory clock holds the SM clock down.
  if (options_.supported.empty() || !in_force_.clock || !clock_known_ || in_force_.memory)
    return std::nullopt;
  const LockState before = watch_.state(), state = watch_.look(estimate);
  if (state == before) return std::nullopt;
  ignored_.clear();
  const std::string told =
      fmt::format("locked at {:.0f} MHz, and the SM clock under load is {:.0f}",
                  in_force_.clock->value(), watch_.seen().value());
  if (state == LockState::effective) futile_ = false;
  if (state == LockState::without_effect) {
    futile_ = true;
    clock_known_ = false;
    return failed(told + " MHz: the write had no effect", estimate.time);
  }
  if (state == LockState::drifted) {
    if (options_.on_drift != DriftRule::ignore) clock_known_ = false;
    return drifted(told + " MHz: another tool changed it", kClockLock, estimate.time);
  }
  return std::nullopt;
}

std::optional<Actuation> Actuator::power_contradicted(const Estimate& estimate) {
  if (!in_force_.power || !power_known_) return std::nullopt;
  if (estimate.time - power_checked_ < kPowerCheckEvery) return std::nullopt;
  power_checked_ = estimate.time;
  const auto now = control_->settings();
  if (!now.ok() || !now->power_limit || same_power(*now->power_limit, *in_force_.power))
    return std::nullopt;
  power_known_ = false;
  return drifted(fmt::format("power limit set to {:.0f} W, and it reads {:.0f} W: another tool "
                             "changed it",
                             in_force_.power->value(), now->power_limit->value()),
                 kPowerLimit, estimate.time);
}

// Another tool set that knob.
std::optional<Actuation> Actuator::drifted(const std::string& what, const char* knob, Instant now) {
  ++drifts_;
  if (options_.on_drift == DriftRule::ignore) {
    ignored_ = what;
    return std::nullopt;
  }
  std::erase_if(fights_, [&](Instant t) { return now - t > kFightWindow; });
  const bool fight = static_cast<int>(fights_.size()) >= kFights;
  if (options_.on_drift == DriftRule::reassert && !fight) {
    fights_.push_back(now);
    return std::nullopt;  // not known any more, so it is written again
  }
  if (in_force_.memory && control_->reset_memory_clock().ok()) forget(kMemoryLock);
  yielded_to_ = what + (fight ? ", again and again: left to it" : ": left to it");
  in_force_ = {};
  forget(knob);
  return plain(Outcome::yielded, yielded_to_);
}

// That knob is not ours to restore.
void Actuator::forget(const char* knob) {
  entry().knobs[knob].written = false;
  if (!options_.journal_handle) return;
  options_.journal_handle->over = !entry().any_written();
  if (options_.journal_handle->over)
    (void)close_journal().ok();
  else
    (void)options_.journal_handle->journal.write(entry()).ok();
}

Actuation Actuator::failed(std::string why, Instant now) {
  retry_after_ = std::clamp(retry_after_ * 2, kRetryFirst, kRetryLast);
  retry_at_ = now + retry_after_;
  failure_ = std::move(why);
  return plain(Outcome::failed, failure_);
}

// On disk before the knob is turned: no journal, no writes.
Result<void> Actuator::look_at_found() {
  if (found_known_) return {};
  const KnobValues now = TRY(control_->read_knobs());
  for (const auto& [knob, value] : now) entry().knobs[knob].found = value;
  found_known_ = true;
  return {};
}

Result<void> Actuator::journal_found(const char* knob) {
  if (entry().is_written(knob)) return {};
  TRY(look_at_found());
  entry().knobs[knob].written = true;
  if (!options_.journal_handle) return {};
  auto kept = options_.journal_handle->journal.write(entry());
  if (!kept.ok()) {
    entry().knobs[knob].written = false;
    return std::move(kept).with("no journal, so nothing is written to the GPU");
  }
  options_.journal_handle->over = false;  // the entry is needed again
  return {};
}

Result<void> Actuator::set_clock() {
  if (target_.clock) return control_->lock_sm_clock(*target_.clock, *target_.clock);
  const auto range = entry().found(kClockLock);
  return range ? control_->lock_sm_clock(Megahertz(range->lowest), Megahertz(range->highest))
               : control_->reset_sm_clock();
}

Result<void> Actuator::write_clock(Instant now) {
  if (target_.clock == in_force_.clock && clock_known_) return {};
  const bool first = !entry().is_written(kClockLock);
  TRY(journal_found(kClockLock));
  clock_known_ = false;  // until the device says that it is done
  auto done = set_clock();
  // A driver that refuses has not touched the clock.
  if (!done.ok() && done.error().code == Errc::no_permission && first) forget(kClockLock);
  TRY(std::move(done));
  if (target_.clock)
    watch_.locked(*target_.clock, now);
  else
    watch_.released();
  ignored_.clear();
  in_force_.clock = target_.clock;
  clock_known_ = true;
  return {};
}

Result<void> Actuator::write_power() {
  if (target_.power == in_force_.power && power_known_) return {};
  // What is there as it was found needs no write.
  if (!entry().is_written(kPowerLimit)) {
    TRY(look_at_found());
    if (!target_.power || power_of(entry().found(kPowerLimit)) == target_.power) {
      in_force_.power = target_.power;
      power_known_ = true;
      return {};
    }
  }
  const bool first = !entry().is_written(kPowerLimit);
  TRY(journal_found(kPowerLimit));
  const auto wanted = target_.power ? target_.power : power_of(entry().found(kPowerLimit));
  if (!wanted) return Error{Errc::not_supported, "the GPU does not tell its power limit"};
  power_known_ = false;
  auto done = control_->set_power_limit(*wanted);
  if (!done.ok() && done.error().code == Errc::no_permission && first) forget(kPowerLimit);
  TRY(std::move(done));
  TRY(check_setting(*control_, *find_knob(gpu_knobs(), kPowerLimit), one_value(wanted->value())));
  in_force_.power = target_.power;
  power_known_ = true;
  return {};
}

// NVML has no getter for the lock: the last write counts. If a lock fails, it is reset and not
// tried again.
Result<void> Actuator::write_memory() {
  if (target_.memory == in_force_.memory && memory_known_) return {};
  const bool first = !entry().is_written(kMemoryLock);
  const KnobInfo& knob = *find_knob(gpu_knobs(), kMemoryLock);
  TRY(journal_found(kMemoryLock));
  memory_known_ = false;
  auto done = target_.memory ? control_->lock_memory_clock(*target_.memory, *target_.memory)
                             : reset_offered_knob(*control_, knob);
  if (!done.ok() && target_.memory) {
    memory_refused_ = true;
    target_.memory.reset();
    const Errc why = done.error().code;
    if (first && (why == Errc::not_supported || why == Errc::no_permission)) {
      memory_known_ = true;
      forget(kMemoryLock);
      return {};
    }
    done = reset_offered_knob(*control_, knob);
  }
  TRY(std::move(done));
  in_force_.memory = target_.memory;
  memory_known_ = true;
  return {};
}

// The memory clock first: a GPU that wakes needs it most.
Actuation Actuator::write(Instant now) {
  const Setting before = in_force_;
  auto done = write_memory();
  auto others = write_clock(now);  // whatever became of the memory
  if (others.ok()) others = write_power();
  if (done.ok()) done = std::move(others);
  if (!done.ok()) return failed(std::move(done).error().message, now);
  failure_.clear();
  if (!futile_) retry_after_ = {};
  const bool released = !target_.clock && !target_.power && !target_.memory;
  const bool as_found = before.clock == in_force_.clock && before.memory == in_force_.memory &&
                        before.power != in_force_.power && !entry().is_written(kPowerLimit);
  Actuation out = plain(released   ? Outcome::released
                        : as_found ? Outcome::nothing
                                   : Outcome::written);
  if (as_found) return out;
  out.before = before.clock;
  if (before.power != in_force_.power)
    out.power_before = before.power ? before.power : power_of(entry().found(kPowerLimit));
  return out;
}

Result<void> Actuator::restore() {
  TRY(restore_device());
  return close_journal();
}

Result<void> Actuator::close_journal() {
  const bool over = options_.journal_handle && options_.journal_handle->over;
  if (!over || control_ == nullptr) return {};
  TRY(options_.journal_handle->journal.remove(entry().domain));
  options_.journal_handle->over = false;
  return {};
}

Result<void> Actuator::restore_device() {
  target_ = in_force_ = {};
  watch_.released();
  if (control_ == nullptr || !entry().any_written()) return {};
  clock_known_ = power_known_ = memory_known_ = false;
  auto restored = restore_settings(*control_, entry());
  clock_known_ = !entry().is_written(kClockLock);
  power_known_ = !entry().is_written(kPowerLimit);
  memory_known_ = !entry().is_written(kMemoryLock);
  if (!restored.ok()) return restored;
  found_known_ = false;
  failure_.clear();
  if (options_.journal_handle) options_.journal_handle->over = true;
  return {};
}

}  // namespace derate
