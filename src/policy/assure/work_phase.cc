#include "policy/assure/work_phase.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Sd of the share of a counter over progress that a quadratic does not describe.
constexpr double kCurveForm = 0.005;
// Sd of power over performance on top of the curve's own: by the chip's own applications, or by
// other chips'. And how much wider the curve's own is for an application that the priors do not
// have. Chosen on applications and chips that were left out (docs/policies/assure.md).
constexpr double kEnergyForm = 0.015, kForeignEnergy = 0.025, kUnseenEnergy = 1.5;
// Share of the time without kernels that follows the clock all the same (launches, copies), its sd:
// one of 35 measured applications has any, 0.22, and 0.30 where its table is not smoothed.
constexpr double kIdleFollows = 0.13;
// Sd of the utilisation, however long it is read: 98 % is read of kernels that never stop.
constexpr double kUtilisationError = 0.01;
constexpr double kUtilisationDrift = 0.02;  // between two visits
constexpr double kUtilisationApart = 0.1;
constexpr double kUtilisationFar = 3;  // standard deviations, of a reading that does not fit
// In logs: so much more than the clock's ratio work may lose. Kernels measured on another V100 lost
// 0.1 to 0.7 points more (shared/found/promise.md, class F).
constexpr double kBeyondRatio = 0.004, kBeyondFrom = 0.1;  // ... from so far below on
constexpr double kOverstatedFrom = 0.21;  // of the clock: so far down a counter errs in full
// Sd of the log of the clock that the power limit would allow at the reference now: it was read
// while the chip was colder, and falls by some percent as it warms.
constexpr double kCappedReference = 0.015;
// Work that is expected to lose this share of the clock's loss, or more, keeps to the clock's
// ratio. A lower clock would gain little there, and the errors of counters reach as far. GeMM, 40
// jobs in a row at 95 %: 32 % of the jobs over without it, 3 % with 0.55, none with 0.5; the gain
// of all applications fell by 0 to 0.3 points (seeds 77 and 79).
constexpr double kClockBound = 0.5;
constexpr double kPlausible = 0.015;     // of log performance above 0
constexpr double kSameEnergy = 0.003;    // in logs: of two clocks, the higher
constexpr double kRecent = 20;           // s over which the phases' shares of the work are averaged
constexpr double kLeastVariance = 1e-8;  // of the log of a rate
constexpr Duration kDoubtFor = std::chrono::seconds(20);

}  // namespace

void ReferenceRate::add(double log_rate, double variance) {
  precision_ += 1 / variance;
  mean_ += (log_rate - mean_) / (variance * precision_);
}

bool PhaseReference::limit_allows(double at) const {
  return capped && at < x + 2 * kCappedReference;
}

bool PhaseReference::is_voided_by(double at) const {
  return at < x - (capped ? 2 * kCappedReference : kAtReference);
}

bool PhaseReference::utilisation_fits(const ReadingBatch& look) const {
  const Readings& read = look.gpu_utilisation;
  if (read.count() == 0) return true;
  const double noise = std::sqrt(read.variance(0.01) / read.count());
  return std::abs(read.mean() - gpu_utilisation) <= kUtilisationApart + kUtilisationFar * noise;
}

void PhaseVisits::begin_again(Instant now) {
  began = now;
  returned = in_job = true;
}

void PhaseVisits::end(std::optional<Instant> now) {
  if (now) lasted += *now - began;
  ++earlier;
}

bool PhaseVisits::is_doubted(Instant now) const { return doubted && now - *doubted < kDoubtFor; }

void RecentWork::add(Instant now, double work) {
  work_ = at(now) + work;
  at_ = now;
}

double RecentWork::at(Instant now) const { return work_ * std::exp(-seconds(now - at_) / kRecent); }

Prospect prospect_of_mixture(std::span<const MixPart> parts, double unknown_work, double x,
                             double z) {
  double work = unknown_work, time = unknown_work * std::exp(x), energy = 0;
  for (const auto& [phase, weight] : parts) {
    work += weight;
    time += weight / std::exp(phase->lower_bound(x, z));
    energy += weight * std::exp(phase->curves.power.power(x).mean - phase->performance(x).mean);
  }
  if (work <= 0) return {};
  return {{}, std::log(work / time), std::log(energy / work)};
}

Prospect best_of(std::span<const Prospect> prospects, double promised) {
  Prospect best{prospects.back().clock};
  for (auto at = prospects.rbegin(); at != prospects.rend(); ++at) {
    if (at->lower_bound < promised) continue;
    if (at != prospects.rbegin() && at->energy > best.energy - kSameEnergy) continue;
    best = *at;
  }
  return best;
}

Belief WorkPhase::performance(double x) const {
  Belief out = curves.assuring().performance(x, reference.x);
  if (x == reference.x) return out;
  if (x > reference.x) out.mean = std::min(0.0, out.mean);  // none is faster at a lower clock
  // Power that fell further than it does beside such progress.
  const std::size_t power = curves.signals.size();
  const bool warned = !curves.corrected && curves.with_power.bias_beyond_prior(power, x) < 0;
  double strain = std::max(1.0, curves.strain());
  if (warned) strain = std::max(strain, curves.with_power.strain(power));
  const double sd = out.sd * strain;
  out.sd = std::sqrt(sd * sd + kCurveForm * kCurveForm);
  return out;
}

bool WorkPhase::is_plausible(double x, const Belief& performance) const {
  const Belief raw = curves.assuring().performance(x, reference.x);
  return x <= reference.x || raw.mean < kPlausible + 2 * performance.sd;
}

// No clock makes work slower than by the clock's own ratio, and only while the GPU is busy: most of
// the rest of the time is the host's (docs/policies/assure.md).
double WorkPhase::at_worst(double x, double z) const {
  const double sd = std::hypot(reference.gpu_utilisation_sd, kUtilisationError);
  const double busy = std::min(1.0, reference.gpu_utilisation + z * sd);
  const double follows = busy + (1 - busy) * std::min(1.0, z * kIdleFollows);
  return std::min(0.0, -std::log1p(follows * std::expm1(x - reference.x))) - beyond_ratio(x);
}

// In logs: so much more than the clocks' ratio work may lose at x.
double WorkPhase::beyond_ratio(double x) const {
  const double below = 1 - std::exp(reference.x - x);
  return kBeyondRatio * std::clamp(below / kBeyondFrom, 0.0, 1.0);
}

double WorkPhase::lower_bound(double x, double z) const {
  if (reference.unproven) return std::min(0.0, -x - kBeyondRatio);
  if (reference.ignores_counters && !speaks(*this)) return by_ratio(x);
  const double at_worst = this->at_worst(x, z);
  const Belief belief = performance(x);
  if (!is_plausible(x, belief)) return at_worst;
  if (!speaks(*this) && belief.mean < -kClockBound * (x - reference.x)) return at_worst;
  const double sure = std::exp(std::min(0.0, belief.mean - z * belief.sd)) - overstated(x);
  return sure > 0 ? std::max(std::log(sure), at_worst) : at_worst;
}

// What the counters may show too much at x, of what they show at the highest clock.
double WorkPhase::overstated(double x) const {
  const double below = 1 - std::exp(reference.x - x);
  return speaks(*this) ? 0 : curves.overstated * std::clamp(below / kOverstatedFrom, 0.0, 1.0);
}

Belief WorkPhase::energy_at_reference(double x) const {
  // Power is level + progress + bias: what is left of power over progress is the bias.
  const Belief out = curves.metered.bias(curves.signals.size(), x, reference.x);
  if (x == reference.x) return {};
  return {-out.mean,
          std::hypot(kUnseenEnergy * out.sd, curves.foreign ? kForeignEnergy : kEnergyForm)};
}

Saving WorkPhase::saving() const {
  const double moved = reference.capped ? kCappedReference : 0;
  const auto wider = [&](Belief belief) {
    return Belief{belief.mean, std::hypot(belief.sd, moved)};
  };
  const auto time = [&](double x) { return wider(performance(x)); };
  const auto energy = [&](double x) { return wider(energy_at_reference(x)); };
  return spent.saving(time, energy);
}

WorkPhase make_phase(const ReadingBatch& reference, Megahertz highest, const CurvePriors& priors,
                     double unsteady) {
  WorkPhase out{.curves = make_curves(reference, highest, priors, unsteady)};
  out.reference.x = reference.x;
  out.reference.capped = reference.capped;
  out.reference.ignores_counters = priors.ignore_counters;
  const Readings& utilisation = reference.gpu_utilisation;
  if (utilisation.count() > 0) {
    out.reference.gpu_utilisation = utilisation.mean();
    out.reference.gpu_utilisation_sd = std::sqrt(utilisation.variance(0.01) / utilisation.count());
  }
  if (const Readings& memory = reference.of(Signal::memory); memory.count() > 0)
    out.reference.memory_utilisation = Fraction(memory.mean());
  return out;
}

bool speaks(const WorkPhase& phase) {
  const std::vector<Signal>& signals = phase.curves.signals;
  return std::find(signals.begin(), signals.end(), Signal::beat) != signals.end();
}

void learn(WorkPhase& phase, const ReadingBatch& look, Instant time) {
  const bool at_reference = look.x < phase.reference.x + kAtReference;
  Belief moved{phase.curves.launches.moved, 0};
  if (phase.curves.launches.moves)
    moved.sd = phase.curves.progress.reading(0, phase.reference.x).sd;
  phase.curves.learn(look, time, at_reference);
  const Readings& beats = look.of(Signal::beat);
  if (!speaks(phase) || beats.count() == 0 || beats.mean() <= 0 || !at_reference) return;
  const double variance = look.relative_variance(Signal::beat) + look.clock_variance();
  phase.reference.rate.move(moved);
  phase.reference.rate.add(std::log(beats.mean()), std::max(variance, kLeastVariance));
}

bool fits(const WorkPhase& phase, const ReadingBatch& look) {
  return phase.curves.counters_fit(look) && phase.reference.utilisation_fits(look) &&
         phase.curves.power_fits(look);
}

PhaseModel to_model(const WorkPhase& phase, const std::string& chip) {
  PhaseModel out;
  out.chip = chip;
  out.reference_x = phase.reference.x;
  out.gpu_utilisation = phase.reference.gpu_utilisation;
  out.id = phase.id;
  put_curves(out, phase.curves);
  return out;
}

std::optional<WorkPhase> from_model(const PhaseModel& model, const CurvePriors& priors) {
  std::optional<PhaseCurves> curves = curves_of(model, priors);
  if (!curves) return std::nullopt;
  WorkPhase out{.curves = *std::move(curves)};
  out.reference.x = model.reference_x;
  out.reference.gpu_utilisation = model.gpu_utilisation;
  out.reference.gpu_utilisation_sd = kUtilisationDrift;
  out.reference.ignores_counters = priors.ignore_counters;
  out.id = model.id;
  return out;
}

}  // namespace derate
