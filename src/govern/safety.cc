#include "govern/safety.h"

#include <algorithm>

namespace derate {
namespace {

// The highest clock that is not above the bound; the lowest of the envelope where all are.
Megahertz highest_within(const Envelope& envelope, Megahertz bound) {
  const auto clocks = envelope.clocks();
  const auto above = std::upper_bound(clocks.begin(), clocks.end(), bound);
  return above == clocks.begin() ? envelope.lowest() : std::max(envelope.lowest(), *(above - 1));
}

}  // namespace

Safety::Safety(const SafetyRules& rules, const Envelope& envelope, bool as_published)
    : rules_(rules), full_(envelope), now_(envelope), as_published_(as_published) {}

// While hot the top of the envelope comes down by a twentieth a second, and goes back up the same
// way: the GPU's own slowdown is blunter and costs more.
void Safety::step_by_heat(const Estimate& estimate) {
  const bool due =
      !thermal_step_at_ || estimate.time - *thermal_step_at_ >= rules_.thermal_step_every;
  if (!due || (!estimate.hot && thermal_steps_ == 0)) return;
  thermal_step_at_ = estimate.time;
  const int places = static_cast<int>(full_.clocks().size());
  const int step = std::max(1, places / 20);
  thermal_steps_ = std::clamp(thermal_steps_ + (estimate.hot ? step : -step), 0, places - 1);
}

const Envelope& Safety::envelope(const Estimate& estimate) {
  step_by_heat(estimate);
  const BoundIntersection bounds = intersect(bounds_, kClockLock, estimate.time);
  const Megahertz cool = full_.stepped(full_.highest(), -thermal_steps_);
  const Megahertz most = bounds.most == nullptr
                             ? full_.highest()
                             : highest_within(full_, Megahertz(*bounds.most->most));
  const Megahertz top = std::min(cool, most);
  is_top_of_heat_ = thermal_steps_ > 0 && cool <= most;
  // Where the bounds contradict each other, the top is the one that holds.
  const Megahertz bottom = bounds.least == nullptr
                               ? full_.lowest()
                               : std::min(top, full_.clamp(Megahertz(*bounds.least->least)));
  if (top == now_.highest() && bottom == now_.lowest()) return now_;
  if (auto narrowed = Envelope::create(full_.clocks(), bottom, top); narrowed.ok())
    now_ = *std::move(narrowed);
  return now_;
}

std::optional<Clamped> Safety::by_freshness(const Estimate& estimate) {
  if (estimate.freshness == Freshness::expired)
    return Clamped{Decision::release({"no reading for too long: back to the GPU's own clock", {}}),
                   Clamped::Rule::expired};
  if (estimate.freshness == Freshness::stale)
    return Clamped{Decision::hold({"the last reading is old: holding", {}}), Clamped::Rule::stale};
  return std::nullopt;
}

Clamped Safety::at_rest(const Estimate& estimate) {
  const bool bounded = now_.highest() != full_.highest() || now_.lowest() != full_.lowest();
  // A trial would give the memory its highest clock; without a context no trial is needed.
  const bool tries = !(memory_rest_ && memory_rest_->parked()) || estimate.tenants == 0;
  if (own_rest_ && bounded) own_rest_->wake();
  const bool left = own_rest_ && !bounded && tries && own_rest_->leave(estimate, now_.lowest());
  const bool parks_memory = memory_rest_ && memory_rest_->park(estimate, left);
  if (left) return {Decision::unlock({"idle: left to its own clock", {}}), Clamped::Rule::idle};
  const double parked = now_.lowest().value();
  Decision out = Decision::set(now_.lowest(), {"idle: parked at {0:.0f} MHz", {parked}});
  if (parks_memory) {
    out.parks_memory = true;
    out.reason = {"idle: parked at {0:.0f} MHz, the memory at its lowest clock", {parked}};
  }
  return {out, Clamped::Rule::idle};
}

// An idle GPU parks at the bottom of the envelope, or is left to its own clock, where that is
// lower. On waking it gets the top at once and keeps it until the policy sets a clock: it is never
// left at the parked one.
std::optional<Clamped> Safety::by_idleness(const Decision& decision, const Estimate& estimate) {
  // A policy that caps the power leaves the clock to the GPU, which lowers it by itself when idle.
  if (decision.kind != Decision::Kind::hold)
    clock_is_the_gpus_ = decision.kind == Decision::Kind::cap;
  if (clock_is_the_gpus_) parked_ = waking_ = false;
  if (as_published_ || clock_is_the_gpus_) return std::nullopt;
  if (estimate.idle && !decision.stays_awake) {
    parked_ = true;
    return at_rest(estimate);
  }
  if (own_rest_) own_rest_->wake();
  if (memory_rest_) memory_rest_->wake();
  if (parked_) {
    parked_ = false;
    waking_ = true;
  }
  if (!waking_) return std::nullopt;
  if (decision.kind == Decision::Kind::hold)
    return Clamped{Decision::set(now_.highest(), {"woken: {0:.0f} MHz until the policy decides",
                                                  {now_.highest().value()}}),
                   Clamped::Rule::wake};
  waking_ = false;
  return std::nullopt;
}

// A GPU whose top is lowered, by heat or by another bound, does not keep a clock above it, whether
// the policy speaks or not; nor one below a bottom that is raised. A power limit that is in force
// stays in force with that clock; one that is not waits until the top is the envelope's again.
std::optional<Clamped> Safety::by_bounds(const Decision& decision,
                                         std::optional<Megahertz> locked) {
  const Megahertz top = now_.highest(), bottom = now_.lowest();
  if (decision.kind == Decision::Kind::hold && locked && *locked < bottom)
    return Clamped{Decision::set(bottom, {"bounded: at least {0:.0f} MHz", {bottom.value()}}),
                   Clamped::Rule::envelope};
  if (top == full_.highest()) return std::nullopt;
  const std::optional<Megahertz> comes = decision.kind == Decision::Kind::set    ? decision.clock
                                         : decision.kind == Decision::Kind::hold ? locked
                                                                                 : std::nullopt;
  if (comes && *comes <= top) return std::nullopt;
  if (is_top_of_heat_)
    return Clamped{Decision::set(top, {"too hot: at most {0:.0f} MHz", {top.value()}}),
                   Clamped::Rule::thermal};
  return Clamped{Decision::set(top, {"bounded: at most {0:.0f} MHz", {top.value()}}),
                 Clamped::Rule::envelope};
}

void Safety::bound_power(Clamped& clamped, Instant now) const {
  const BoundIntersection bounds = intersect(bounds_, kPowerLimit, now);
  Watts allowed = clamped.decision.power_limit;
  if (bounds.least != nullptr) allowed = std::max(allowed, Watts(*bounds.least->least));
  if (bounds.most != nullptr) allowed = std::min(allowed, Watts(*bounds.most->most));
  if (allowed == clamped.decision.power_limit) return;
  clamped = {Decision::cap(allowed, {"bounded: {0:.0f} W", {allowed.value()}}),
             Clamped::Rule::envelope};
}

// Lowering is limited, and what was put off stays wanted until the policy says otherwise. Coming
// down from above a top that heat lowered is not limited.
std::optional<Clamped> Safety::by_rate(const Decision& decision, const Estimate& estimate,
                                       std::optional<Megahertz> locked) {
  const bool lowers = locked && decision.clock < *locked && *locked <= now_.highest();
  if (as_published_ || !lowers) return std::nullopt;
  if (lowered_at_ && estimate.time - *lowered_at_ < rules_.lower_every) {
    put_off_ = decision;
    return Clamped{
        Decision::hold({"lowered less than {0:.0f} s ago: holding", {seconds(rules_.lower_every)}}),
        Clamped::Rule::rate_limit};
  }
  lowered_at_ = estimate.time;
  return std::nullopt;
}

Clamped Safety::clamp(const Decision& decision, const Estimate& estimate,
                      std::optional<Megahertz> locked) {
  if (const auto clamped = by_freshness(estimate)) return *clamped;
  if (const auto clamped = by_idleness(decision, estimate)) {
    put_off_.reset();
    return *clamped;
  }
  const bool speaks = decision.kind != Decision::Kind::hold;
  Clamped out{!speaks && put_off_ ? *put_off_ : decision, Clamped::Rule::none};
  put_off_.reset();
  if (const auto clamped = by_bounds(out.decision, locked)) return *clamped;
  if (out.decision.kind == Decision::Kind::cap) bound_power(out, estimate.time);
  if (out.decision.kind != Decision::Kind::set) return out;
  const Megahertz allowed = now_.clamp(out.decision.clock);
  if (allowed != out.decision.clock) out.rule = Clamped::Rule::envelope;
  out.decision.clock = allowed;
  return by_rate(out.decision, estimate, locked).value_or(out);
}

}  // namespace derate
