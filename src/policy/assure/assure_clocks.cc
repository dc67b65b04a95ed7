#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/assure/assure_policy.h"
#include "policy/assure/loss_shares.h"

namespace derate {
namespace {

constexpr Duration kLookBeforeRefresh = std::chrono::seconds(3);
constexpr Duration kFreeReference = std::chrono::seconds(6);
constexpr double kReferenceShare = 0.02;
constexpr double kWorthRefresh = 0.001;  // of performance

}  // namespace

// The log of performance that this phase is best given of what all may lose that take turns with
// it; empty: none does, or not all of them are known.
std::optional<double> Assure::share_of_loss(const Envelope& envelope) const {
  const bool exact = told_ && speaks(*belief_.phase) && belief_.tenants <= 1;
  if (!exact || watch_.restless || !account_.saves_up || options_.dry_run) return std::nullopt;
  const std::vector<MixPart> parts = belief_.mix_of_late(*last_);
  const bool present = !parts.empty() && parts.front().phase == &*belief_.phase;
  if (parts.size() < 2 || !present || belief_.phase->visits == 0) return std::nullopt;
  std::vector<PhaseCosts> costs;
  for (const auto& [phase, work] : parts) {
    const double watts = std::exp(phase->power.power(0).mean);
    PhaseCosts& one = costs.emplace_back(PhaseCosts{.work = work});
    for (const Prospect& at : prospects_of(*phase, envelope)) {
      one.time.push_back(std::exp(-at.lower_bound));
      one.energy.push_back(watts * std::exp(at.energy));
    }
  }
  const std::size_t clock = share_loss(costs, 1 / (1 - account_.delta - account_.spare())).front();
  return -std::log(costs.front().time[clock]);
}

// The log of performance to keep now. What others save may be spent when it is saved, over what is
// left of the visit.
double Assure::promised(const Envelope& envelope) {
  if (prospects_.empty()) shared_ = share_of_loss(envelope);
  if (!shared_) return account_.promised(earned());
  const Duration visit = belief_.phase->lasted / std::max(1, belief_.phase->visits);
  const Duration left = visit - (*last_ - belief_.phase->began);
  return account_.promised_of(*shared_, left);
}

// Whether knowing the highest clock's readings better would let the clock go lower, and that saves
// more than the visit costs. Work lasts about as long again as it has lasted.
bool Assure::refresh_pays(const Estimate& estimate, const Envelope& envelope) {
  if (asked_ <= envelope.lowest() || asked_ >= envelope.highest() || watch_.restless) return false;
  if (estimate.time - held_since_ < window_ + kLookBeforeRefresh) return false;
  const Duration age = belief_.phase->lasted + (estimate.time - belief_.phase->began);
  if (belief_.phase->referred > kFreeReference + from_seconds(seconds(age) * kReferenceShare))
    return false;
  const double x = options_.position(asked_),
               sd = belief_.phase->assuring().performance(x, belief_.phase->reference_x).sd;
  double after = sd;
  for (std::size_t k = 0; k < belief_.phase->signals.size(); ++k) {
    const double least = belief_.phase->assuring().sd_with_level(k, x);
    const double known = std::pow(belief_.phase->assuring().level_sd(k) / kEnough, 2);
    after = std::min(after, std::sqrt(least * least + (sd * sd - least * least) / (1 + known)));
  }
  const double better = belief_.z * (sd - after);
  if (better <= kWorthRefresh) return false;
  const double promised = account_.promised(earned());
  const double now = best(envelope, promised).energy;
  const double then = best(envelope, promised - better).energy;
  return (seconds(age) + seconds(kShortestJob)) * (now - then) > -now * visit();
}

// How long a visit to the highest clock takes until its readings are known, s.
double Assure::visit() const {
  double readings = kFewest;
  for (const Signal signal : belief_.phase->signals) {
    const Readings& seen = look_.signals[static_cast<std::size_t>(signal)];
    if (seen.count() > 0) readings = std::max(readings, readings_needed(look_, signal, kEnough));
  }
  return seconds(window_) + std::min(readings * options_.tick, seconds(options_.reference));
}

// One clock for all of them.
std::vector<Prospect> Assure::prospects_of_mixture(const Envelope& envelope) const {
  const std::vector<MixPart> parts = belief_.mix_of_late(*last_);
  std::vector<Prospect> out;
  for (const Megahertz clock : envelope.clocks()) {
    const double x = options_.position(clock);
    Prospect one = prospect_of_mixture(parts, belief_.unknown_recent.at(*last_), x, belief_.z);
    one.lower_bound = belief_.of_each_tenant(one.lower_bound, x);
    one.clock = clock;
    out.push_back(one);
  }
  return out;
}

// What is sure of the work at that clock.
double Assure::sure_at(Megahertz clock) const {
  if (watch_.restless)
    for (const Prospect& one : prospects_)
      if (one.clock >= clock) return one.lower_bound;
  return belief_.lower_bound(options_.position(clock));
}

std::vector<Prospect> Assure::prospects_of(const WorkPhase& phase, const Envelope& envelope) const {
  const PhaseOutlook outlook(phase);
  std::vector<Prospect> out;
  for (const Megahertz clock : envelope.clocks()) {
    const double x = options_.position(clock);
    out.push_back({clock, belief_.of_each_tenant(outlook.lower_bound(x, belief_.z), x),
                   phase.power.relative(x).mean - outlook.performance(x).mean});
  }
  return out;
}

std::vector<Prospect> Assure::prospects(const Envelope& envelope) const {
  return watch_.restless ? prospects_of_mixture(envelope) : prospects_of(*belief_.phase, envelope);
}

Prospect Assure::best(const Envelope& envelope, double promised) {
  const bool known = prospects_.size() == envelope.clocks().size() && !prospects_.empty() &&
                     prospects_.front().clock == envelope.lowest() &&
                     prospects_.back().clock == envelope.highest();
  if (!known) prospects_ = prospects(envelope);
  return best_of(prospects_, promised);
}

// The lowest clock that one look at may cost: the more it differs, the more it tells.
Megahertz Assure::probe_clock(const Envelope& envelope) const {
  const double time = seconds(window_ + std::chrono::milliseconds(800));
  const double may_cost = kLookShare * account_.delta * seconds(kShortestJob);
  for (const Megahertz clock : envelope.clocks())
    if ((1 - clock / envelope.highest()) * time <= may_cost) return clock;
  return envelope.highest();
}

}  // namespace derate
