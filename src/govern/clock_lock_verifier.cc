#include "govern/clock_lock_verifier.h"

#include <algorithm>
#include <cstdlib>

namespace derate {
namespace {

// Reasons that say no more than "as it was set": NVML names a lock by one of them.
constexpr std::uint64_t kHarmless =
    throttle::kApplicationsClocksSetting | throttle::kDisplayClockSetting;

bool under_load(const Estimate& estimate) {
  return estimate.gpu_utilisation && estimate.gpu_utilisation->value() > 0 &&
         (estimate.throttle_reasons.value_or(0) & throttle::kGpuIdle) == 0;
}

}  // namespace

void ClockLockVerifier::locked(Megahertz clock, Instant now) {
  if (state_ != LockState::none && clock == lock_ && state_ != LockState::drifted &&
      state_ != LockState::without_effect)
    return;  // the same lock again proves nothing new
  lock_ = clock;
  since_ = now;
  state_ = LockState::unproven;
  off_.reset();
}

void ClockLockVerifier::released() {
  state_ = LockState::none;
  off_.reset();
}

bool ClockLockVerifier::within_a_step(Megahertz clock) const {
  const auto place = [&](Megahertz f) {
    return std::lower_bound(supported_.begin(), supported_.end(), f) - supported_.begin();
  };
  return std::abs(place(clock) - place(lock_)) <= 1;
}

LockState ClockLockVerifier::look(const Estimate& estimate) {
  const bool judged = state_ == LockState::unproven || state_ == LockState::effective;
  if (!judged || estimate.freshness != Freshness::fresh || !estimate.sm_clock ||
      !under_load(estimate))
    return state_;
  const Megahertz clock = *estimate.sm_clock;
  if (within_a_step(clock)) {
    state_ = LockState::effective;
    off_.reset();
    return state_;
  }
  // A clock below the lock may be the power limit's or the heat's doing; one above never is.
  const bool held_down = (estimate.throttle_reasons.value_or(~kHarmless) & ~kHarmless) != 0;
  if (clock < lock_ && (held_down || minimum_is_a_request_)) {
    if (seen_ > lock_) off_.reset();  // the higher clock has passed
    return state_;
  }
  seen_ = clock;
  if (!off_) off_ = estimate.time;
  const Instant counted_from = state_ == LockState::unproven ? since_ : *off_;
  if (estimate.time - counted_from >= kPatience)
    state_ = state_ == LockState::unproven ? LockState::without_effect : LockState::drifted;
  return state_;
}

}  // namespace derate
