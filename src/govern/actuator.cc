#include "govern/actuator.h"

#include <utility>

#include "device/clock_control.h"

namespace derate {

Actuator::Actuator(Actuator&& other) noexcept
    : control_(std::exchange(other.control_, nullptr)),
      touched_(std::exchange(other.touched_, false)),
      target_(other.target_),
      locked_(other.locked_) {}

Actuator::~Actuator() { (void)restore().ok(); }

Actuation Actuator::apply(const Decision& decision) {
  if (decision.kind == Decision::Kind::set) target_ = decision.clock;
  if (decision.kind == Decision::Kind::release) target_.reset();
  if (target_ == locked_) return {Actuation::Outcome::nothing, locked_, {}};
  return write(target_);
}

Actuation Actuator::write(std::optional<Megahertz> clock) {
  if (control_ == nullptr) {
    locked_ = clock;
    return {Actuation::Outcome::shadow, locked_, {}};
  }
  touched_ = true;
  const auto done = clock ? control_->lock_sm_clock(*clock, *clock) : control_->reset_sm_clock();
  if (!done.ok()) return {Actuation::Outcome::failed, locked_, done.error().message};
  locked_ = clock;
  return {clock ? Actuation::Outcome::written : Actuation::Outcome::released, locked_, {}};
}

Result<void> Actuator::restore() {
  if (control_ == nullptr || !touched_) return {};
  TRY(control_->reset_sm_clock());
  touched_ = false;
  target_.reset();
  locked_.reset();
  return {};
}

}  // namespace derate
