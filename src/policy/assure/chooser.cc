#include "policy/assure/chooser.h"

#include <algorithm>
#include <cmath>

#include "policy/assure/loss_shares.h"

namespace derate {
namespace {

constexpr double kWorthRefresh = 0.001;  // of performance
constexpr int kSteps = 12;

}  // namespace

std::vector<Prospect> prospects_of(const WorkPhase& phase, const Outlook& outlook) {
  std::vector<Prospect> out;
  for (const Megahertz clock : outlook.envelope.clocks()) {
    const double x = outlook.options.position(clock);
    const double lower_bound = phase.lower_bound(x, outlook.belief.z);
    out.push_back({clock, outlook.belief.of_each_tenant(lower_bound, x),
                   phase.curves.power.relative(x).mean - phase.performance(x).mean});
  }
  return out;
}

std::vector<Prospect> prospects_of_mixture(const Outlook& outlook) {
  const WorkBelief& belief = outlook.belief;
  const std::vector<MixPart> parts = belief.mix_of_late(outlook.now);
  std::vector<Prospect> out;
  for (const Megahertz clock : outlook.envelope.clocks()) {
    const double x = outlook.options.position(clock);
    Prospect one = prospect_of_mixture(parts, belief.unknown_recent.at(outlook.now), x, belief.z);
    one.lower_bound = belief.of_each_tenant(one.lower_bound, x);
    one.clock = clock;
    out.push_back(one);
  }
  return out;
}

std::optional<double> share_of_loss(const Outlook& outlook, double longest) {
  const WorkPhase& now = *outlook.belief.phase;
  const std::vector<MixPart> parts = outlook.belief.mix_of_late(outlook.now);
  const bool present = !parts.empty() && parts.front().phase == &now;
  if (parts.size() < 2 || !present || now.visits.earlier == 0) return std::nullopt;
  std::vector<PhaseCosts> costs;
  for (const auto& [phase, work] : parts) {
    const double watts = std::exp(phase->curves.power.power(0).mean);
    PhaseCosts& one = costs.emplace_back(PhaseCosts{.work = work});
    for (const Prospect& at : prospects_of(*phase, outlook)) {
      one.time.push_back(std::exp(-at.lower_bound));
      one.energy.push_back(watts * std::exp(at.energy));
    }
  }
  const std::size_t clock = share_loss(costs, longest).front();
  return -std::log(costs.front().time[clock]);
}

Megahertz will_hold(double promised, const Outlook& outlook) {
  const WorkPhase& now = *outlook.belief.phase;
  WorkPhase learned = now;
  learned.curves.assume_read(now.reference.x);
  Megahertz clock = outlook.envelope.highest();
  for (int step = 0; step < kSteps; ++step) {
    const Megahertz next = best_of(prospects_of(learned, outlook), promised).clock;
    if (next >= clock) break;
    clock = next;
    learned.curves.assume_read(outlook.options.position(clock));
  }
  return clock;
}

Megahertz probe_clock(const Envelope& envelope, double time_s, double may_cost) {
  for (const Megahertz clock : envelope.clocks())
    if ((1 - clock / envelope.highest()) * time_s <= may_cost) return clock;
  return envelope.highest();
}

Prospect Chooser::best(const Outlook& outlook, double promised) {
  const Envelope& envelope = outlook.envelope;
  const bool known = prospects_.size() == envelope.clocks().size() && !prospects_.empty() &&
                     prospects_.front().clock == envelope.lowest() &&
                     prospects_.back().clock == envelope.highest();
  if (!known)
    prospects_ = outlook.restless ? prospects_of_mixture(outlook)
                                  : prospects_of(*outlook.belief.phase, outlook);
  return best_of(prospects_, promised);
}

double Chooser::sure_at(Megahertz clock, const Outlook& outlook) const {
  if (outlook.restless)
    for (const Prospect& one : prospects_)
      if (one.clock >= clock) return one.lower_bound;
  return outlook.belief.lower_bound(outlook.options.position(clock));
}

bool Chooser::refresh_pays(const Outlook& outlook, Megahertz asked, double promised,
                           const Visit& visit) {
  const WorkPhase& phase = *outlook.belief.phase;
  const double x = outlook.options.position(asked);
  const ProgressCurve& curve = phase.curves.assuring();
  const double sd = curve.performance(x, phase.reference.x).sd;
  double after = sd;
  for (std::size_t k = 0; k < phase.curves.signals.size(); ++k) {
    const double least = curve.sd_with_level(k, x);
    const double known = std::pow(curve.level_sd(k) / kEnough, 2);
    after = std::min(after, std::sqrt(least * least + (sd * sd - least * least) / (1 + known)));
  }
  const double better = outlook.belief.z * (sd - after);
  if (better <= kWorthRefresh) return false;
  const double now = best(outlook, promised).energy;
  const double then = best(outlook, promised - better).energy;
  return visit.serves_s * (now - then) > -now * visit.takes_s;
}

}  // namespace derate
