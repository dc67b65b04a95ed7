#include "policy/assure/work_phase.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kLeastShare = 0.03;
constexpr double kLeastUtilisation = 0.1;  // in whole percents: a tenth less is one
constexpr double kCurveForm = 0.005;   // sd of what a quadratic leaves of a counter beside progress
constexpr double kEnergyForm = 0.006;  // the same of power over performance
// Share of the time without kernels that follows the clock all the same (launches, copies), its sd:
// one of 35 measured applications has any, 0.22, and 0.30 where its table is not smoothed.
constexpr double kIdleFollows = 0.13;
// Sd of the utilisation, however long it is read: 98 % is read of kernels that never stop.
constexpr double kUtilisationError = 0.01;
constexpr double kUtilisationDrift = 0.02;  // between two visits
constexpr double kLevelDrift = 0.01;        // relative, of a counter between two visits
constexpr double kPowerDrift = 0.01;        // relative: heat, operand data
// Relative, of the clock that NVML shows while the power limit moves it: it read from 0.7 % below
// to 2 % above the rate of work that only follows the clock (docs/real-gpu.md).
constexpr double kCappedClock = 0.01;
constexpr double kOverstatedFrom = 0.21;  // of the clock: so far down a counter errs in full
// Sd of the log of the clock that the power limit would allow at the reference now: it was read
// while the chip was colder, and falls by some percent as it warms.
constexpr double kCappedReference = 0.015;
constexpr double kPlausible = 0.015;  // of log performance above 0
constexpr double kFar = 3;            // standard deviations, of a reading that does not fit
constexpr double kUtilisationApart = 0.1;
constexpr double kPowerApart = 0.04;
// Variance of the log of power at one clock, by second: a chip gets warmer, and draws more by that,
// for minutes. What is compared must have been read soon after each other.
constexpr double kPowerWalk = 1e-5;
// The same of a counter: 0.2 % in a second, 1.5 % in a minute (docs/policies/assure.md).
constexpr double kCounterWalk = 4e-6;
constexpr double kPowerNoise = 0.005;                 // of a few readings' mean
constexpr double kPowerKnown = 0.1, kPowerOff = 0.3;  // in logs
constexpr double kAgePerHour = 0.002;                 // share of the prior's variance
constexpr double kSameEnergy = 0.003;                 // in logs: of two clocks, the higher
constexpr double kWellRead = 0.003;                   // relative sd of a counter
constexpr double kRecent = 20;  // s over which the phases' shares of the work are averaged
// Readings of beats that spread much less than this are of steady work, whose noise is where in a
// step they begin and end: of recorded launches in windows of 0.2 s 0.1 to 1.8 %, and 13 % where
// each step is other work. Of the variance of steady ones the work itself has 0.04 to 0.1
// (tests/fixtures/h200-launches).
constexpr double kBeatsSteady = 0.06, kBeatsVary = 0.1;
constexpr double kLeastVariance = 1e-8;  // of the log of a rate
// A beat says what it says; its bias is of the size of a step's share of time.
constexpr CoefficientPrior kExact{{0, 0}, {1e-5, 0, 1e-5}};

const Readings& of(const ReadingBatch& look, Signal signal) {
  return look.signals[static_cast<std::size_t>(signal)];
}

CoefficientPrior bias_of(Signal signal, bool saturated, const CurvePriors& priors) {
  if (signal == Signal::beat) return kExact;
  if (is_pipe(signal)) return *priors.pipe;
  return saturated ? *priors.memory_saturated : *priors.memory;
}

double clock_variance(const ReadingBatch& look) {
  return look.capped ? kCappedClock * kCappedClock : 0;
}

bool is_memory(Signal signal) { return signal == Signal::memory || signal == Signal::dram; }

std::optional<double> share(const ReadingBatch& look, Signal signal, Megahertz highest) {
  const Readings& readings = of(look, signal);
  if (readings.count() == 0) return std::nullopt;
  return share_of(signal, readings.mean(), highest * std::exp(-look.x), highest);
}

// Of a memory utilisation that is not saturated, where power says something of its bias: a curve of
// both, on which power itself, known as a whole, says nothing of progress. It follows that too
// loosely.
std::optional<ProgressCurve> corrected_by_power(std::span<const Signal> signals, bool saturated,
                                                const CurvePriors& priors) {
  if (!priors.memory_power || saturated || signals.size() != 1 || signals[0] != Signal::memory)
    return std::nullopt;
  // What power says besides progress, so that the sum is independent of it.
  CoefficientPrior besides = priors.power;
  CrossCovariance against{};
  for (std::size_t i = 0; i < 2; ++i) besides.mean[i] -= priors.performance.mean[i];
  for (std::size_t i = 0; i < 3; ++i) besides.covariance[i] += priors.performance.covariance[i];
  for (std::size_t i = 0; i < 4; ++i) against[i] = -priors.performance.covariance[i / 2 + i % 2];
  ProgressCurve out(priors.performance,
                    std::array{bias_of(signals[0], saturated, priors), besides});
  out.relate(1, against);
  out.relate(0, 1, *priors.memory_power);
  return out;
}

WorkPhase phase_of(std::vector<Signal> signals, bool saturated, const CurvePriors& priors) {
  std::vector<CoefficientPrior> bias;
  for (const Signal signal : signals) bias.push_back(bias_of(signal, saturated, priors));
  ProgressCurve curve(priors.performance, bias);
  bias.push_back(priors.power_beside);
  ProgressCurve with_power(priors.performance, bias);
  ProgressCurve metered = with_power;
  auto corrected = corrected_by_power(signals, saturated, priors);
  return {std::move(signals),       saturated,
          priors.overstated,        std::move(curve),
          std::move(corrected),     std::move(with_power),
          PowerCurve(priors.power), std::move(metered)};
}

bool saturated(const ReadingBatch& reference) {
  const Readings& dram = of(reference, Signal::dram);
  const Readings& memory = dram.count() > 0 ? dram : of(reference, Signal::memory);
  return memory.count() > 0 && memory.mean() >= kSaturated;
}

BeliefModel model_of(const LinearBelief& belief) {
  BeliefModel out;
  for (std::size_t i = 0; i < belief.size(); ++i) {
    out.mean.push_back(belief.mean(i));
    for (std::size_t j = 0; j <= i; ++j) out.covariance.push_back(belief.covariance(i, j));
  }
  return out;
}

std::optional<LinearBelief> belief_of(const BeliefModel& model, std::size_t size) {
  if (model.mean.size() != size || model.covariance.size() != size * (size + 1) / 2)
    return std::nullopt;
  LinearBelief out(size);
  auto cell = model.covariance.begin();
  for (std::size_t i = 0; i < size; ++i) {
    out.set_mean(i, model.mean[i]);
    for (std::size_t j = 0; j <= i; ++j) out.set_covariance(i, j, *cell++);
  }
  return out;
}

// What the counters show of the same work at the same clock may wander since the last reading.
void drift(WorkPhase& phase, Instant time) {
  const Duration since = time - phase.learned_at.value_or(time);
  phase.learned_at = time;
  const double variance = kCounterWalk * std::clamp(seconds(since), 0.0, 3600.0);
  for (std::size_t k = 0; k < phase.signals.size(); ++k) {
    if (phase.signals[k] == Signal::beat) continue;
    phase.curve.drift(k, variance);
    phase.with_power.drift(k, variance);
    if (phase.corrected) phase.corrected->drift(k, variance);
  }
}

// Of one reading of beats: the share of its variance that is the work's own, and falls with the
// number of readings. The rest falls with its square: readings that follow each other are one
// count, and what one has too much at its end the next has too little.
double varying_share(double relative_variance_of_one) {
  return std::clamp(relative_variance_of_one / (kBeatsSteady * kBeatsSteady), kBeatsVary, 1.0);
}

// The same where what was read tells it, too: work that waits for others spreads, and yet goes on
// evenly. Where others may set its rate that tells nothing of this GPU's clock.
double falling_share(const ReadingBatch& look, double relative_variance_of_one) {
  if (look.may_wait) return 1;
  const Readings& readings = of(look, Signal::beat);
  return std::max(kBeatsVary,
                  std::min(varying_share(relative_variance_of_one), readings.independent_share()));
}

}  // namespace

void ReadingBatch::add(const ReadingTick& tick, Megahertz highest) {
  for (std::size_t i = 0; i < kSignals; ++i)
    if (tick.signals[i]) signals[i].add(*tick.signals[i]);
  if (tick.power) power.add(*tick.power);
  if (tick.power && !tick.heard) signals[static_cast<std::size_t>(Signal::power)].add(*tick.power);
  capped |= tick.capped;
  may_wait |= tick.may_wait;
  clock.add(tick.clock);
  x = std::max(0.0, std::log(highest.value() / clock.mean()));
  if (tick.gpu_utilisation) gpu_utilisation.add(*tick.gpu_utilisation);
}

void ReadingBatch::clear() {
  for (Readings& readings : signals) readings.clear();
  capped = may_wait = false;
  clock.clear();
  power.clear();
  gpu_utilisation.clear();
}

double step_of(Signal signal) {
  if (signal == Signal::power) return 1;
  return signal == Signal::memory ? 0.01 : 1e-4;
}

double relative_variance(const ReadingBatch& look, Signal signal) {
  const Readings& readings = of(look, signal);
  const double independent = readings.relative_variance(step_of(signal));
  if (signal != Signal::beat) return independent;
  return independent *
         std::max(1.0 / readings.count(), falling_share(look, independent * readings.count()));
}

double readings_needed(const ReadingBatch& look, Signal signal, double relative_sd) {
  const Readings& readings = of(look, signal);
  const double of_one = readings.relative_variance(step_of(signal)) * readings.count();
  const double independent = of_one / (relative_sd * relative_sd);
  if (signal != Signal::beat) return independent;
  return std::max(std::sqrt(independent), falling_share(look, of_one) * independent);
}

void ReferenceRate::add(double log_rate, double variance) {
  precision_ += 1 / variance;
  mean_ += (log_rate - mean_) / (variance * precision_);
}

void RecentWork::add(Instant now, double work) {
  work_ = at(now) + work;
  at_ = now;
}

double RecentWork::at(Instant now) const { return work_ * std::exp(-seconds(now - at_) / kRecent); }

Prospect prospect_of_mixture(std::span<const MixPart> parts, double unknown_work, double x,
                             double z) {
  double work = unknown_work, time = unknown_work * std::exp(x), energy = 0;
  for (const auto& [phase, weight] : parts) {
    const PhaseOutlook outlook(*phase);
    work += weight;
    time += weight / std::exp(outlook.lower_bound(x, z));
    energy += weight * std::exp(phase->power.power(x).mean - outlook.performance(x).mean);
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

PhaseOutlook::PhaseOutlook(const WorkPhase& phase) : phase_(phase) {
  strain_ = std::max(strain_, phase.strain());
  strain_with_power_ = std::max(strain_, phase.with_power.strain(phase.signals.size()));
}

Belief PhaseOutlook::performance(double x) const {
  Belief out = phase_.assuring().performance(x, phase_.reference_x);
  if (x == phase_.reference_x) return out;
  if (x > phase_.reference_x)
    out.mean = std::min(0.0, out.mean);  // none is faster at a lower clock
  // Power that fell further than it does beside such progress.
  const bool warned =
      !phase_.corrected && phase_.with_power.bias_beyond_prior(phase_.signals.size(), x) < 0;
  const double sd = out.sd * (warned ? strain_with_power_ : strain_);
  out.sd = std::sqrt(sd * sd + kCurveForm * kCurveForm);
  return out;
}

bool PhaseOutlook::plausible(double x) const {
  const Belief raw = phase_.assuring().performance(x, phase_.reference_x);
  return x <= phase_.reference_x || raw.mean < kPlausible + 2 * performance(x).sd;
}

// No clock makes work slower than by the clock's own ratio, and only while the GPU is busy: most of
// the rest of the time is the host's (docs/policies/assure.md).
double PhaseOutlook::at_worst(double x, double z) const {
  const double sd = std::hypot(phase_.gpu_utilisation_sd, kUtilisationError);
  const double busy = std::min(1.0, phase_.gpu_utilisation + z * sd);
  const double follows = busy + (1 - busy) * std::min(1.0, z * kIdleFollows);
  return std::min(0.0, -std::log1p(follows * std::expm1(x - phase_.reference_x)));
}

double PhaseOutlook::lower_bound(double x, double z) const {
  const double at_worst = this->at_worst(x, z);
  if (!plausible(x)) return at_worst;
  const Belief belief = performance(x);
  const double sure = std::exp(std::min(0.0, belief.mean - z * belief.sd)) - overstated(x);
  return sure > 0 ? std::max(std::log(sure), at_worst) : at_worst;
}

// What the counters may show too much at x, of what they show at the highest clock.
double PhaseOutlook::overstated(double x) const {
  const double below = 1 - std::exp(phase_.reference_x - x);
  return speaks(phase_) ? 0 : phase_.overstated * std::clamp(below / kOverstatedFrom, 0.0, 1.0);
}

Belief WorkPhase::performance(double x) const { return PhaseOutlook(*this).performance(x); }

double WorkPhase::strain() const {
  double out = 0;
  for (std::size_t k = 0; k < signals.size(); ++k) out = std::max(out, assuring().strain(k));
  return out;
}

bool WorkPhase::plausible(double x) const { return PhaseOutlook(*this).plausible(x); }

double WorkPhase::lower_bound(double x, double z) const {
  return PhaseOutlook(*this).lower_bound(x, z);
}

Belief WorkPhase::energy_at_reference(double x) const {
  // Power is level + progress + bias: what is left of power over progress is the bias.
  const Belief out = metered.bias(signals.size(), x, reference_x);
  if (x == reference_x) return {};
  return {-out.mean, std::hypot(out.sd, kEnergyForm)};
}

bool WorkPhase::limit_allows(double x) const {
  return reference_capped && x < reference_x + 2 * kCappedReference;
}

Saving WorkPhase::saving(bool dry_run) const {
  const PhaseOutlook outlook(*this);
  const double moved = reference_capped ? kCappedReference : 0;
  const auto wider = [&](Belief belief) {
    return Belief{belief.mean, std::hypot(belief.sd, moved)};
  };
  const auto time = [&](double x) { return wider(outlook.performance(x)); };
  const auto energy = [&](double x) { return wider(energy_at_reference(x)); };
  return dry_run ? spent.would_be(time, energy) : spent.saving(time, energy);
}

std::vector<Signal> informative_signals(const ReadingBatch& reference, Megahertz highest,
                                        const CurvePriors& priors) {
  if (of(reference, Signal::beat).count() > 0) return {Signal::beat};
  const auto informs = [&](Signal signal) {
    const double least = signal == Signal::memory ? kLeastUtilisation : kLeastShare;
    return share(reference, signal, highest).value_or(0) >= least;
  };
  std::vector<Signal> out;
  const bool memory =
      saturated(reference) ? priors.memory_saturated.has_value() : priors.memory.has_value();
  if (memory && informs(Signal::dram))
    out.push_back(Signal::dram);
  else if (memory && informs(Signal::memory) && of(reference, Signal::dram).count() == 0)
    out.push_back(Signal::memory);
  if (!priors.pipe) return out;
  std::optional<Signal> busiest;
  for (const Signal signal : {Signal::fp64, Signal::fp32, Signal::fp16, Signal::integer})
    if (informs(signal) &&
        (!busiest || share(reference, signal, highest) > share(reference, *busiest, highest)))
      busiest = signal;
  if (busiest) out.push_back(*busiest);
  if (informs(Signal::tensor)) out.push_back(Signal::tensor);
  return out;
}

WorkPhase make_phase(const ReadingBatch& reference, Megahertz highest, const CurvePriors& priors) {
  WorkPhase out =
      phase_of(informative_signals(reference, highest, priors), saturated(reference), priors);
  out.reference_x = reference.x;
  out.reference_capped = reference.capped;
  const Readings& utilisation = reference.gpu_utilisation;
  if (utilisation.count() > 0) {
    out.gpu_utilisation = utilisation.mean();
    out.gpu_utilisation_sd = std::sqrt(utilisation.variance(0.01) / utilisation.count());
  }
  return out;
}

bool speaks(const WorkPhase& phase) {
  return std::find(phase.signals.begin(), phase.signals.end(), Signal::beat) != phase.signals.end();
}

WorkPhase well_read(WorkPhase phase, double x) {
  const auto read = [&](ProgressCurve& curve) {
    for (std::size_t k = 0; k < phase.signals.size(); ++k)
      curve.observe(k, x, curve.reading(k, x).mean, kWellRead * kWellRead);
  };
  read(phase.curve);
  if (phase.corrected) read(*phase.corrected);
  return phase;
}

void meter(WorkPhase& phase, Instant time, double x, Watts mean, double relative_variance) {
  if (mean <= Watts(0)) return;
  const std::size_t counter = phase.signals.size();
  const Duration since = time - phase.metered_at.value_or(time);
  phase.metered_at = time;
  phase.metered.drift(counter, kPowerWalk * std::clamp(seconds(since), 0.0, 3600.0));
  const Belief expected = phase.metered.reading(counter, x);
  const double value = std::log(mean.value());
  // The work ended meanwhile, or had not begun.
  if (expected.sd < kPowerKnown && std::abs(value - expected.mean) > kPowerOff) return;
  phase.metered.observe(counter, x, value, relative_variance);
}

void learn(WorkPhase& phase, const ReadingBatch& look, Instant time) {
  drift(phase, time);
  for (std::size_t k = 0; k < phase.signals.size(); ++k) {
    const Readings& readings = of(look, phase.signals[k]);
    if (readings.count() == 0 || readings.mean() <= 0) continue;
    const double value = std::log(readings.mean());
    const double variance = relative_variance(look, phase.signals[k]) + clock_variance(look);
    phase.curve.observe(k, look.x, value, variance);
    if (phase.signals[k] == Signal::beat && look.x < phase.reference_x + kAtReference)
      phase.reference_rate.add(value, std::max(variance, kLeastVariance));
    if (phase.corrected) phase.corrected->observe(k, look.x, value, variance);
    phase.with_power.observe(k, look.x, value, variance);
    phase.metered.observe(k, look.x, value, variance);
  }
  const Readings& power = of(look, Signal::power);
  if (power.count() == 0 || power.mean() <= 0) return;
  const double variance = relative_variance(look, Signal::power);
  const double value = std::log(power.mean()), drifting = variance + kPowerDrift * kPowerDrift;
  phase.with_power.observe(phase.signals.size(), look.x, value, drifting);
  if (phase.corrected) phase.corrected->observe(phase.signals.size(), look.x, value, drifting);
  meter(phase, time, look.x, Watts(power.mean()), variance + kPowerNoise * kPowerNoise);
}

bool counters_fit(const WorkPhase& phase, const ReadingBatch& look) {
  for (std::size_t k = 0; k < phase.signals.size(); ++k) {
    const Readings& readings = of(look, phase.signals[k]);
    if (readings.count() == 0 || readings.mean() <= 0) return false;
    const Belief expected = phase.curve.reading(k, look.x);
    const double variance = expected.sd * expected.sd + kLevelDrift * kLevelDrift +
                            relative_variance(look, phase.signals[k]) + clock_variance(look);
    if (std::abs(std::log(readings.mean()) - expected.mean) > kFar * std::sqrt(variance))
      return false;
  }
  return true;
}

bool fits(const WorkPhase& phase, const ReadingBatch& look) {
  if (!counters_fit(phase, look)) return false;
  if (look.gpu_utilisation.count() > 0) {
    const double noise =
        std::sqrt(look.gpu_utilisation.variance(0.01) / look.gpu_utilisation.count());
    if (std::abs(look.gpu_utilisation.mean() - phase.gpu_utilisation) >
        kUtilisationApart + kFar * noise)
      return false;
  }
  const Readings& power = of(look, Signal::power);
  const Belief expected = phase.with_power.reading(phase.signals.size(), look.x);
  if (power.count() == 0 || power.mean() <= 0 || expected.sd > 1) return true;
  return std::abs(std::log(power.mean()) - expected.mean) < kPowerApart + kFar * expected.sd;
}

PhaseModel to_model(const WorkPhase& phase, const std::string& chip) {
  PhaseModel out;
  out.chip = chip;
  for (const Signal signal : phase.signals) out.signals.emplace_back(to_string(signal));
  out.reference_x = phase.reference_x;
  out.gpu_utilisation = phase.gpu_utilisation;
  out.progress = model_of(phase.curve.belief());
  out.with_power = model_of(phase.with_power.belief());
  out.power_curve = model_of(phase.power.belief());
  out.saturated = phase.saturated;
  out.id = phase.id;
  return out;
}

std::optional<WorkPhase> from_model(const PhaseModel& model, const CurvePriors& priors) {
  std::vector<Signal> signals;
  for (const std::string& name : model.signals)
    for (std::size_t i = 0; i < kSignals; ++i)
      if (name == to_string(static_cast<Signal>(i))) signals.push_back(static_cast<Signal>(i));
  const bool known = std::all_of(signals.begin(), signals.end(), [&](Signal signal) {
    if (is_pipe(signal)) return priors.pipe.has_value();
    if (!is_memory(signal)) return true;
    return (model.saturated ? priors.memory_saturated : priors.memory).has_value();
  });
  // Beats count in units of one application: no other run is known by them.
  const bool beats = std::find(signals.begin(), signals.end(), Signal::beat) != signals.end();
  if (signals.empty() || signals.size() != model.signals.size() || !known || beats ||
      signals.size() > ProgressCurve::kMostCounters)
    return std::nullopt;
  WorkPhase out = phase_of(std::move(signals), model.saturated, priors);
  const auto progress = belief_of(model.progress, out.curve.belief().size());
  const auto with_power = belief_of(model.with_power, out.with_power.belief().size());
  const auto power = belief_of(model.power_curve, out.power.belief().size());
  if (!progress || !with_power || !power) return std::nullopt;
  out.curve.recall(*progress);
  out.with_power.recall(*with_power);
  out.power.recall(*power);
  out.metered.recall(*with_power);
  out.corrected.reset();  // no model keeps it
  const double aged = kAgePerHour * seconds(model.age) / 3600;
  for (ProgressCurve* curve : {&out.curve, &out.with_power, &out.metered})
    curve->age(aged, kLevelDrift * kLevelDrift);
  out.reference_x = model.reference_x;
  out.gpu_utilisation = model.gpu_utilisation;
  out.gpu_utilisation_sd = kUtilisationDrift;
  out.id = model.id;
  return out;
}

}  // namespace derate
