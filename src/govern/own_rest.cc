#include "govern/own_rest.h"

#include <algorithm>

namespace derate {

// The first context, and the last one's end: what a trial has shown is out of date.
void OwnRest::heed(const std::optional<int>& tenants) {
  if (!tenants) return;
  if (tenants_ && (*tenants_ == 0) != (*tenants == 0)) {
    next_trial_ = Instant::min();
    again_after_ = kAgainFirst;
  }
  tenants_ = tenants;
}

bool OwnRest::leave(const Estimate& estimate, Megahertz parked) {
  heed(estimate.tenants);
  if (!idle_since_) idle_since_ = estimate.time;
  if (!estimate.sm_clock) return left_ = false;
  const bool empty = tenants_ == 0;
  const bool due = empty || estimate.time - *idle_since_ >= kFirst;
  if (!left_ && !(due && estimate.time >= next_trial_)) return false;
  left_ = true;
  if (*estimate.sm_clock < parked) {
    above_for_ = {};
    again_after_ = kAgainFirst;
  }
  if (*estimate.sm_clock <= parked) {  // the clock of a moment ago, where it is the parked one
    above_at_.reset();
    return true;
  }
  if (above_at_) above_for_ += estimate.time - *above_at_;
  above_at_ = estimate.time;
  if (above_for_ < kTrial) return true;
  above_at_.reset();
  above_for_ = {};
  next_trial_ = estimate.time + again_after_;
  again_after_ = std::min(2 * again_after_, kAgainLast);
  return left_ = false;
}

bool MemoryRest::park(const Estimate& estimate, bool left) {
  if (!idle_since_) idle_since_ = estimate.time;
  const bool allowed = estimate.display == false && !left;
  const bool due = estimate.time - *idle_since_ >= after_;
  const bool higher = estimate.memory_clock && *estimate.memory_clock > lowest_;
  return parked_ = allowed && (parked_ || (due && higher));
}

void OwnRest::wake() {
  left_ = false;
  idle_since_.reset();
  above_at_.reset();
}

}  // namespace derate
