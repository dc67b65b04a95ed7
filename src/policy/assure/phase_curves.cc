#include "policy/assure/phase_curves.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace derate {
namespace {

constexpr double kLeastShare = 0.03;
constexpr double kLeastUtilisation = 0.1;  // in whole percents: a tenth less is one
constexpr double kLevelDrift = 0.01;       // relative, of a counter between two visits
constexpr double kPowerDrift = 0.01;       // relative: heat, operand data
constexpr double kFar = 3;                 // standard deviations, of a reading that does not fit
constexpr double kPowerApart = 0.04;
// Variance of the log of power at one clock, by second: a chip gets warmer, and draws more by that,
// for minutes. What is compared must have been read soon after each other.
constexpr double kPowerWalk = 1e-5;
// The same of a counter: 0.2 % in a second, 1.5 % in a minute (docs/policies/assure.md).
constexpr double kCounterWalk = 4e-6;
constexpr double kPowerNoise = 0.005;                 // of a few readings' mean
constexpr double kPowerKnown = 0.1, kPowerOff = 0.3;  // in logs
constexpr double kAgePerHour = 0.002;                 // share of the prior's variance
constexpr double kWellRead = 0.003;                   // relative sd of a counter
// Of the log of the work in a launch, a second: the sd of its trend before anything is known, the
// variance by which the trend changes, and by which the work does without one.
constexpr double kTrend = 2e-3, kTrendWalk = 4e-9, kLaunchWalk = 1e-7;
constexpr double kNearClock = 0.02;  // of x: the curve's form fits
constexpr double kTrendLasts = 5;    // s, between two readings
// Innovations: the weight of the newest, what is no surprise, and s in which a trend turns.
constexpr double kOfSurprise = 0.2, kSurprises = 3, kTurns = 10;
// A beat says what it says; its bias is of the size of a step's share of time.
constexpr CoefficientPrior kExact{{0, 0}, {1e-5, 0, 1e-5}};

CoefficientPrior bias_of(Signal signal, bool saturated, const CurvePriors& priors) {
  if (signal == Signal::beat) return kExact;
  if (is_pipe(signal)) return *priors.pipe;
  return saturated ? *priors.memory_saturated : *priors.memory;
}

bool is_memory(Signal signal) { return signal == Signal::memory || signal == Signal::dram; }

std::optional<double> share(const ReadingBatch& look, Signal signal, Megahertz highest) {
  const Readings& readings = look.of(signal);
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

PhaseCurves curves_by(std::vector<Signal> signals, bool saturated, const CurvePriors& priors) {
  std::vector<CoefficientPrior> bias;
  for (const Signal signal : signals) bias.push_back(bias_of(signal, saturated, priors));
  ProgressCurve progress(priors.performance, bias);
  bias.push_back(priors.power_beside);
  ProgressCurve with_power(priors.performance, bias);
  ProgressCurve metered = with_power;
  auto corrected = corrected_by_power(signals, saturated, priors);
  return {std::move(signals),    saturated,
          priors.overstated,     priors.foreign,
          std::move(progress),   std::move(corrected),
          std::move(with_power), PowerCurve(priors.power),
          std::move(metered)};
}

bool saturated(const ReadingBatch& reference) {
  const Readings& dram = reference.of(Signal::dram);
  const Readings& memory = dram.count() > 0 ? dram : reference.of(Signal::memory);
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
void drift(PhaseCurves& curves, Instant time) {
  const Duration since = time - curves.learned_at.value_or(time);
  curves.learned_at = time;
  const double time_s = std::clamp(seconds(since), 0.0, 3600.0);
  curves.movements.resize(curves.signals.size());
  for (std::size_t k = 0; k < curves.signals.size(); ++k) {
    if (curves.signals[k] == Signal::beat) continue;
    // A trend goes on: what it may have moved grows with the time, not with its root.
    auto& [trend, moved] = curves.movements[k];
    const double before = std::exchange(moved, moved + trend.per_second(time) * time_s);
    const double variance = kCounterWalk * time_s + moved * moved - before * before;
    if (variance <= 0) continue;
    curves.progress.drift(k, variance);
    curves.with_power.drift(k, variance);
    if (curves.corrected) curves.corrected->drift(k, variance);
  }
}

// Launches: the work in one may change, with a trend or without one.
void follow(PhaseCurves& curves, const ReadingBatch& look, Instant time) {
  LaunchLevel& of = curves.launches;
  const double since = seconds(time - curves.learned_at.value_or(time));
  const double time_s = std::clamp(since, 0.0, kTrendLasts), scale = of.unsteady * of.unsteady;
  const double trend = curves.progress.trend().mean;
  const double beyond = trend * (std::max(0.0, since) - time_s);
  of.moved += trend * time_s;
  ProgressCurve::Passage passage{time_s, beyond * beyond + scale * kLaunchWalk * time_s,
                                 scale * kTrendWalk * time_s};
  const Readings& rate = look.of(Signal::beat);
  if (rate.count() > 0 && rate.mean() > 0) {
    ProgressCurve ahead = curves.progress;
    ahead.pass(passage);
    const Belief expected = ahead.reading(0, look.x);
    const double variance =
        look.relative_variance(Signal::beat) + look.clock_variance() + expected.sd * expected.sd;
    const double innovation = std::log(rate.mean()) - expected.mean;
    of.surprise += kOfSurprise * (innovation * innovation / variance - of.surprise);
    const double far = std::clamp(innovation / std::sqrt(variance), -kFar, kFar);
    if (of.innovations.add(far)) {
      of.outgrown = of.unsteady < LaunchLevel::kMostUnsteady;
      of.innovations = {};
    }
    const double unexplained = std::max(0.0, of.surprise - kSurprises) * variance;
    passage.level_variance += unexplained;
    passage.trend_variance += unexplained / (kTurns * kTurns);
  }
  for (ProgressCurve* curve : {&curves.progress, &curves.with_power, &curves.metered})
    curve->pass(passage);
}

}  // namespace

double PhaseCurves::strain() const {
  double out = 0;
  for (std::size_t k = 0; k < signals.size(); ++k) out = std::max(out, assuring().strain(k));
  return out;
}

void PhaseCurves::learn(const ReadingBatch& look, Instant time, bool at_reference) {
  movements.resize(signals.size());
  for (std::size_t k = 0; k < signals.size(); ++k) {
    const Readings& readings = look.of(signals[k]);
    if (readings.count() == 0 || readings.mean() <= 0 || signals[k] == Signal::beat) continue;
    movements[k].trend.add(time, look.x, std::log(readings.mean()),
                           look.relative_variance(signals[k]) + look.clock_variance());
  }
  if (launches.moves) follow(*this, look, time);
  drift(*this, time);
  for (std::size_t k = 0; k < signals.size(); ++k)
    if (at_reference && look.of(signals[k]).count() > 0) movements[k].moved = launches.moved = 0;
  for (std::size_t k = 0; k < signals.size(); ++k) {
    const Readings& readings = look.of(signals[k]);
    if (readings.count() == 0 || readings.mean() <= 0) continue;
    const double value = std::log(readings.mean());
    const double variance = look.relative_variance(signals[k]) + look.clock_variance();
    const double level = progress.level(k);
    progress.observe(k, look.x, value, variance);
    // Just after a change of the clock the curve's form may not fit: that is no movement.
    if (launches.moves && std::abs(look.x - std::exchange(launches.x, look.x)) < kNearClock)
      launches.moved += progress.level(k) - level;
    if (corrected) corrected->observe(k, look.x, value, variance);
    with_power.observe(k, look.x, value, variance);
    metered.observe(k, look.x, value, variance);
  }
  const Readings& read = look.of(Signal::power);
  if (read.count() == 0 || read.mean() <= 0) return;
  const double variance = look.relative_variance(Signal::power);
  const double value = std::log(read.mean()), drifting = variance + kPowerDrift * kPowerDrift;
  with_power.observe(signals.size(), look.x, value, drifting);
  if (corrected) corrected->observe(signals.size(), look.x, value, drifting);
  meter(time, look.x, Watts(read.mean()), variance + kPowerNoise * kPowerNoise);
}

void PhaseCurves::meter(Instant time, double x, Watts mean, double relative_variance) {
  if (mean <= Watts(0)) return;
  const std::size_t counter = signals.size();
  const Duration since = time - metered_at.value_or(time);
  metered_at = time;
  metered.drift(counter, kPowerWalk * std::clamp(seconds(since), 0.0, 3600.0));
  const Belief expected = metered.reading(counter, x);
  const double value = std::log(mean.value());
  // The work ended meanwhile, or had not begun.
  if (expected.sd < kPowerKnown && std::abs(value - expected.mean) > kPowerOff) return;
  metered.observe(counter, x, value, relative_variance);
}

void PhaseCurves::assume_read(double x) {
  const auto read = [&](ProgressCurve& curve) {
    for (std::size_t k = 0; k < signals.size(); ++k)
      curve.observe(k, x, curve.reading(k, x).mean, kWellRead * kWellRead);
  };
  read(progress);
  if (corrected) read(*corrected);
}

bool PhaseCurves::counters_fit(const ReadingBatch& look) const {
  for (std::size_t k = 0; k < signals.size(); ++k) {
    const Readings& readings = look.of(signals[k]);
    if (readings.count() == 0 || readings.mean() <= 0) return false;
    const Belief expected = progress.reading(k, look.x);
    const double variance = expected.sd * expected.sd + kLevelDrift * kLevelDrift +
                            look.relative_variance(signals[k]) + look.clock_variance();
    if (std::abs(std::log(readings.mean()) - expected.mean) > kFar * std::sqrt(variance))
      return false;
  }
  return true;
}

bool PhaseCurves::power_fits(const ReadingBatch& look) const {
  const Readings& read = look.of(Signal::power);
  const Belief expected = with_power.reading(signals.size(), look.x);
  if (read.count() == 0 || read.mean() <= 0 || expected.sd > 1) return true;
  return std::abs(std::log(read.mean()) - expected.mean) < kPowerApart + kFar * expected.sd;
}

std::vector<Signal> informative_signals(const ReadingBatch& reference, Megahertz highest,
                                        const CurvePriors& priors) {
  if (reference.of(Signal::beat).count() > 0) return {Signal::beat};
  if (priors.ignore_counters) return {};
  const auto informs = [&](Signal signal) {
    const double least = signal == Signal::memory ? kLeastUtilisation : kLeastShare;
    return share(reference, signal, highest).value_or(0) >= least;
  };
  std::vector<Signal> out;
  const bool memory =
      saturated(reference) ? priors.memory_saturated.has_value() : priors.memory.has_value();
  if (memory && informs(Signal::dram))
    out.push_back(Signal::dram);
  else if (memory && informs(Signal::memory) && reference.of(Signal::dram).count() == 0)
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

PhaseCurves make_curves(const ReadingBatch& reference, Megahertz highest, const CurvePriors& priors,
                        double unsteady) {
  PhaseCurves out =
      curves_by(informative_signals(reference, highest, priors), saturated(reference), priors);
  // Heartbeats stand for equal work: their sender says so.
  out.launches.moves = reference.launched && !out.signals.empty() && out.signals[0] == Signal::beat;
  out.launches.unsteady = unsteady;
  if (out.launches.moves)
    for (ProgressCurve* curve : {&out.progress, &out.with_power, &out.metered})
      curve->add_trend(0, unsteady * kTrend);
  return out;
}

void put_curves(PhaseModel& model, const PhaseCurves& curves) {
  for (const Signal signal : curves.signals) model.signals.emplace_back(to_string(signal));
  model.progress = model_of(curves.progress.belief());
  model.with_power = model_of(curves.with_power.belief());
  model.power_curve = model_of(curves.power.belief());
  model.saturated = curves.saturated;
}

std::optional<PhaseCurves> curves_of(const PhaseModel& model, const CurvePriors& priors) {
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
  PhaseCurves out = curves_by(std::move(signals), model.saturated, priors);
  const auto progress = belief_of(model.progress, out.progress.belief().size());
  const auto with_power = belief_of(model.with_power, out.with_power.belief().size());
  const auto power = belief_of(model.power_curve, out.power.belief().size());
  if (!progress || !with_power || !power) return std::nullopt;
  out.progress.recall(*progress);
  out.with_power.recall(*with_power);
  out.power.recall(*power);
  out.metered.recall(*with_power);
  out.corrected.reset();  // no model keeps it
  const double aged = kAgePerHour * seconds(model.age) / 3600;
  for (ProgressCurve* curve : {&out.progress, &out.with_power, &out.metered})
    curve->age(aged, kLevelDrift * kLevelDrift);
  return out;
}

}  // namespace derate
