#include "policy/work_phase.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

constexpr double kLeastShare = 0.03;   // 3 steps of a counter in whole percents
constexpr double kCurveForm = 0.004;   // sd of what a quadratic leaves of a measured curve
constexpr double kEnergyForm = 0.006;  // the same of power over performance
constexpr double kLevelDrift = 0.01;   // relative, of a counter between two visits
constexpr double kPowerDrift = 0.01;   // relative: heat, operand data
// Relative, of the clock that NVML shows while the power limit moves it: it read from 0.7 % below
// to 2 % above the rate of work that only follows the clock (docs/real-gpu.md).
constexpr double kCappedClock = 0.01;
constexpr double kPlausible = 0.015;  // of log performance above 0
constexpr double kFar = 3;            // standard deviations, of a reading that does not fit
constexpr double kUtilisationApart = 0.1;
constexpr double kPowerApart = 0.04;
// Variance of the log of power at one clock, by second: a chip gets warmer, and draws more by that,
// for minutes. What is compared must have been read soon after each other.
constexpr double kPowerWalk = 1e-5;
constexpr double kPowerNoise = 0.005;                 // of a few readings' mean
constexpr double kPowerKnown = 0.1, kPowerOff = 0.3;  // in logs
constexpr double kAgePerHour = 0.002;                 // share of the prior's variance
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

WorkPhase phase_of(std::vector<Signal> signals, bool saturated, const CurvePriors& priors) {
  std::vector<CoefficientPrior> bias;
  for (const Signal signal : signals) bias.push_back(bias_of(signal, saturated, priors));
  ProgressCurve curve(priors.performance, bias);
  bias.push_back(priors.power_beside);
  ProgressCurve with_power(priors.performance, bias), metered = with_power;
  return {std::move(signals),       saturated,         std::move(curve), std::move(with_power),
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

}  // namespace

void ReadingBatch::clear() {
  for (Readings& readings : signals) readings.clear();
  capped = false;
  clock.clear();
  gpu_utilisation.clear();
}

double step_of(Signal signal) {
  if (signal == Signal::power) return 1;
  return signal == Signal::memory ? 0.01 : 1e-4;
}

Belief WorkPhase::performance(double x) const {
  Belief out = curve.performance(x, reference_x);
  if (x == reference_x) return out;
  if (x > reference_x) out.mean = std::min(0.0, out.mean);  // no work is faster at a lower clock
  double strain = 1;
  for (std::size_t k = 0; k < signals.size(); ++k) strain = std::max(strain, curve.strain(k));
  // Power that fell further than it does beside such progress.
  if (with_power.bias_beyond_prior(signals.size(), x) < 0)
    strain = std::max(strain, with_power.strain(signals.size()));
  out.sd = std::hypot(out.sd * strain, kCurveForm);
  return out;
}

Belief WorkPhase::energy_at_reference(double x) const {
  // Power is level + progress + bias: what is left of power over progress is the bias.
  const Belief out = metered.bias(signals.size(), x, reference_x);
  if (x == reference_x) return {};
  return {-out.mean, std::hypot(out.sd, kEnergyForm)};
}

Saving WorkPhase::saving(bool dry_run) const {
  const auto time = [&](double x) { return performance(x); };
  const auto energy = [&](double x) { return energy_at_reference(x); };
  return dry_run ? spent.would_be(time, energy) : spent.saving(time, energy);
}

bool WorkPhase::plausible(double x) const {
  const Belief raw = curve.performance(x, reference_x), widened = performance(x);
  return x <= reference_x || raw.mean < kPlausible + 2 * widened.sd;
}

double WorkPhase::lower_bound(double x, double z) const {
  // No clock makes work slower than by the clock's own ratio (docs/policies/assure.md).
  const double at_worst = std::min(0.0, reference_x - x);
  if (!plausible(x)) return at_worst;
  const Belief belief = performance(x);
  return std::max(std::min(0.0, belief.mean - z * belief.sd), at_worst);
}

std::vector<Signal> informative_signals(const ReadingBatch& reference, Megahertz highest,
                                        const CurvePriors& priors) {
  if (of(reference, Signal::beat).count() > 0) return {Signal::beat};
  const auto informs = [&](Signal signal) {
    return share(reference, signal, highest).value_or(0) >= kLeastShare;
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
  if (reference.gpu_utilisation.count() > 0) out.gpu_utilisation = reference.gpu_utilisation.mean();
  return out;
}

bool speaks(const WorkPhase& phase) {
  return std::find(phase.signals.begin(), phase.signals.end(), Signal::beat) != phase.signals.end();
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
  for (std::size_t k = 0; k < phase.signals.size(); ++k) {
    const Readings& readings = of(look, phase.signals[k]);
    if (readings.count() == 0 || readings.mean() <= 0) continue;
    const double value = std::log(readings.mean());
    const double variance =
        readings.relative_variance(step_of(phase.signals[k])) + clock_variance(look);
    phase.curve.observe(k, look.x, value, variance);
    phase.with_power.observe(k, look.x, value, variance);
    phase.metered.observe(k, look.x, value, variance);
  }
  const Readings& power = of(look, Signal::power);
  if (power.count() == 0 || power.mean() <= 0) return;
  const double variance = power.relative_variance(step_of(Signal::power));
  phase.with_power.observe(phase.signals.size(), look.x, std::log(power.mean()),
                           variance + kPowerDrift * kPowerDrift);
  meter(phase, time, look.x, Watts(power.mean()), variance + kPowerNoise * kPowerNoise);
}

bool counters_fit(const WorkPhase& phase, const ReadingBatch& look) {
  for (std::size_t k = 0; k < phase.signals.size(); ++k) {
    const Readings& readings = of(look, phase.signals[k]);
    if (readings.count() == 0 || readings.mean() <= 0) return false;
    const Belief expected = phase.curve.reading(k, look.x);
    const double variance = expected.sd * expected.sd + kLevelDrift * kLevelDrift +
                            readings.relative_variance(step_of(phase.signals[k])) +
                            clock_variance(look);
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
  const double aged = kAgePerHour * seconds(model.age) / 3600;
  for (ProgressCurve* curve : {&out.curve, &out.with_power, &out.metered})
    curve->age(aged, kLevelDrift * kLevelDrift);
  out.reference_x = model.reference_x;
  out.gpu_utilisation = model.gpu_utilisation;
  out.id = model.id;
  return out;
}

}  // namespace derate
