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

// Drivers keep whole milliwatts, some of them whole watts.
bool same_power(Watts a, Watts b) { return std::abs((a - b).value()) < 1; }

// The limit as it reads after it was set. Where it cannot be read nothing is known against it.
Result<void> check_power(ClockControl& control, Watts wanted) {
  const GpuSettings now = TRY(control.settings());
  if (!now.power_limit || same_power(*now.power_limit, wanted)) return {};
  return Error{Errc::query_failed,
               fmt::format("the power limit was set to {:.0f} W and reads {:.0f} W: the write had "
                           "no effect",
                           wanted.value(), now.power_limit->value())};
}

}  // namespace

Result<void> restore_settings(ClockControl& control, JournalEntry& entry) {
  std::optional<Error> failure;
  const auto record_outcome = [&](Result<void> result, bool& written) {
    if (result.ok())
      written = false;
    else if (!failure)
      failure = std::move(result).error();
    else
      failure->message += "; " + result.error().message;
  };
  if (entry.clock_written) {
    const auto& range = entry.found_lock;
    record_outcome(
        range ? control.lock_sm_clock(range->lowest, range->highest) : control.reset_sm_clock(),
        entry.clock_written);
  }
  if (entry.power_written && entry.found.power_limit) {
    auto result = control.set_power_limit(*entry.found.power_limit);
    if (result.ok()) result = check_power(control, *entry.found.power_limit);
    record_outcome(std::move(result), entry.power_written);
  }
  if (failure) return *std::move(failure);
  return {};
}

Actuator::Actuator(ClockControl* control, ActuatorOptions options)
    : control_(control), options_(std::move(options)), watch_(options_.supported) {
  // An entry that was written to already is one that somebody hands on.
  found_known_ = entry().clock_written || entry().power_written;
  if (entry().clock_written) clock_known_ = false;
  if (entry().power_written) power_known_ = false;
}

Actuator::~Actuator() { (void)restore().ok(); }

Actuation Actuator::plain(Outcome outcome, const std::string& error) const {
  Actuation out{outcome, in_force_.clock, error.empty() ? ignored_ : error};
  out.power_limit = in_force_.power;
  out.drifts = drifts_;
  return out;
}

void Actuator::aim(const Decision& decision) {
  if (decision.kind == Decision::Kind::set) target_.clock = decision.clock;
  if (decision.kind == Decision::Kind::cap) target_ = {std::nullopt, decision.power_limit};
  if (decision.kind == Decision::Kind::release) target_ = {};
}

Actuation Actuator::apply(const Decision& decision, const Estimate& estimate) {
  aim(decision);
  if (control_ == nullptr) {
    if (target_ == in_force_) return plain(Outcome::nothing);
    in_force_ = target_;
    return plain(Outcome::shadow);
  }
  if (!yielded_to_.empty()) return plain(Outcome::yielded, yielded_to_);
  if (auto contradicted = watch(estimate)) return *std::move(contradicted);
  if (target_ == in_force_ && clock_known_ && power_known_) return plain(Outcome::nothing);
  // Another clock now would hide that another tool has changed ours.
  if (options_.on_drift != DriftRule::ignore && target_.clock && clock_known_ &&
      watch_.in_doubt(estimate.time))
    return plain(Outcome::nothing);
  if (!failure_.empty() && estimate.time < retry_at_) return plain(Outcome::waiting, failure_);
  return write(estimate.time);
}

std::optional<Actuation> Actuator::watch(const Estimate& estimate) {
  if (auto contradicted = clock_contradicted(estimate)) return contradicted;
  return power_contradicted(estimate);
}

std::optional<Actuation> Actuator::clock_contradicted(const Estimate& estimate) {
  if (options_.supported.empty() || !in_force_.clock || !clock_known_) return std::nullopt;
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
    return drifted(told + " MHz: another tool changed it", entry().clock_written, estimate.time);
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
                 entry().power_written, estimate.time);
}

// Another tool turned the knob that `written` is about.
std::optional<Actuation> Actuator::drifted(const std::string& what, bool& written, Instant now) {
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
  yielded_to_ = what + (fight ? ", again and again: left to it" : ": left to it");
  in_force_ = {};
  forget(written);
  return plain(Outcome::yielded, yielded_to_);
}

// That knob is not ours to restore.
void Actuator::forget(bool& written) {
  written = false;
  if (!options_.journal_handle) return;
  const bool any = entry().clock_written || entry().power_written;
  const Journal& journal = options_.journal_handle->journal;
  (void)(any ? journal.write(entry()) : journal.remove(entry().uuid)).ok();
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
  entry().found = TRY(control_->settings());
  found_known_ = true;
  return {};
}

Result<void> Actuator::journal_found(bool& written) {
  if (written) return {};
  TRY(look_at_found());
  written = true;
  if (!options_.journal_handle) return {};
  auto kept = options_.journal_handle->journal.write(entry());
  if (!kept.ok()) {
    written = false;
    return std::move(kept).with("no journal, so nothing is written to the GPU");
  }
  return {};
}

Result<void> Actuator::set_clock() {
  if (target_.clock) return control_->lock_sm_clock(*target_.clock, *target_.clock);
  const auto& range = entry().found_lock;
  return range ? control_->lock_sm_clock(range->lowest, range->highest)
               : control_->reset_sm_clock();
}

Result<void> Actuator::write_clock(Instant now) {
  if (target_.clock == in_force_.clock && clock_known_) return {};
  const bool first = !entry().clock_written;
  TRY(journal_found(entry().clock_written));
  clock_known_ = false;  // until the device says that it is done
  auto done = set_clock();
  // A driver that refuses has not touched the clock.
  if (!done.ok() && done.error().code == Errc::no_permission && first)
    forget(entry().clock_written);
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
  if (!entry().power_written) {
    TRY(look_at_found());
    if (!target_.power || entry().found.power_limit == target_.power) {
      in_force_.power = target_.power;
      power_known_ = true;
      return {};
    }
  }
  const bool first = !entry().power_written;
  TRY(journal_found(entry().power_written));
  const auto wanted = target_.power ? target_.power : entry().found.power_limit;
  if (!wanted) return Error{Errc::not_supported, "the GPU does not tell its power limit"};
  power_known_ = false;
  auto done = control_->set_power_limit(*wanted);
  if (!done.ok() && done.error().code == Errc::no_permission && first)
    forget(entry().power_written);
  TRY(std::move(done));
  TRY(check_power(*control_, *wanted));
  in_force_.power = target_.power;
  power_known_ = true;
  return {};
}

Actuation Actuator::write(Instant now) {
  const Setting before = in_force_;
  auto done = write_clock(now);
  if (done.ok()) done = write_power();
  if (!done.ok()) return failed(std::move(done).error().message, now);
  failure_.clear();
  if (!futile_) retry_after_ = {};
  const bool released = !target_.clock && !target_.power;
  const bool as_found =
      before.clock == in_force_.clock && before.power != in_force_.power && !entry().power_written;
  Actuation out = plain(released   ? Outcome::released
                        : as_found ? Outcome::nothing
                                   : Outcome::written);
  if (as_found) return out;
  out.before = before.clock;
  if (before.power != in_force_.power)
    out.power_before = before.power ? before.power : entry().found.power_limit;
  return out;
}

Result<void> Actuator::restore() {
  target_ = in_force_ = {};
  watch_.released();
  if (control_ == nullptr || (!entry().clock_written && !entry().power_written)) return {};
  clock_known_ = power_known_ = false;
  auto restored = restore_settings(*control_, entry());
  clock_known_ = !entry().clock_written;
  power_known_ = !entry().power_written;
  if (!restored.ok()) return restored;
  found_known_ = false;
  failure_.clear();
  if (options_.journal_handle) TRY(options_.journal_handle->journal.remove(entry().uuid));
  return {};
}

}  // namespace derate
