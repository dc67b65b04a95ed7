#include "policy/assure/belief.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/alike_applications.h"

namespace derate {
namespace {

constexpr Duration kNewPhase = std::chrono::seconds(2);  // shorter ones are not remembered
constexpr double kOfTwo = 3;                             // strain
constexpr std::size_t kMostPhases = 32;
constexpr double kRounding = 1e-6;  // of a share

// Quantile of the standard normal distribution for probabilities in (0.5, 1): Abramowitz and Stegun
// 26.2.23, error below 4.5e-4.
double normal_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(1 - p));
  return t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                 (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
}

// Whether it is known what the phase does at the highest clock.
bool is_well_known(const WorkPhase& phase) {
  return !speaks(phase) || phase.reference.rate.rate().sd <= kEnough;
}

}  // namespace

WorkBelief::WorkBelief(const AssureOptions& options)
    : z(normal_quantile(options.confidence)), priors(curve_priors(options.prior)) {
  allow_for(options);
  if (options.models == nullptr) return;
  for (const PhaseModel& model : options.models->recall(options.chip))
    if (auto one = from_model(model, priors); one && known.size() < kMostPhases)
      known.insert(known.begin(), *std::move(one));
}

void WorkBelief::begin(const std::string& work, const AssureOptions& options) {
  std::erase_if(known, [](const WorkPhase& each) { return speaks(each); });
  for (WorkPhase& each : known) each.visits.in_job = false;
  unknown = {};
  unknown_recent = {};
  unsteady = 1;
  if (!options.leave_out || work == left_out) return;
  left_out = work;
  priors = curve_priors(options.prior, work);
  allow_for(options);
}

void WorkBelief::allow_for(const AssureOptions& options) {
  priors.overstated = options.overstated;
  priors.ignore_counters = options.ignore_counters;
  priors.foreign = options.foreign;
}

double WorkBelief::lower_bound(double x) const {
  return phase ? of_each_tenant(phase->lower_bound(x, z), x) : std::min(0.0, -x);
}

double WorkBelief::of_each_tenant(double lower_bound, double x) const {
  return tenants > 1 ? phase->by_ratio(x) : lower_bound;
}

std::vector<MixPart> WorkBelief::mix_of_late(Instant now) const {
  std::vector<MixPart> parts;
  double all = unknown_recent.at(now);
  if (phase) parts.push_back({&*phase, phase->recent.at(now)});
  for (const WorkPhase& each : known) parts.push_back({&each, each.recent.at(now)});
  for (const MixPart& part : parts) all += part.work;
  std::erase_if(parts, [&](const MixPart& part) { return part.work < kLeastOfMixture * all; });
  return parts;
}

bool WorkBelief::knows_too_little(Instant now, bool told) const {
  double little = unknown_recent.at(now), all = little;
  const auto add = [&](const WorkPhase& each) {
    const double work = each.recent.at(now);
    all += work;
    if (told && !is_well_known(each)) little += work;
  };
  if (phase) add(*phase);
  for (const WorkPhase& each : known) add(each);
  return little > kLeastOfMixture * all;
}

void WorkBelief::count_work(bool is_known, double x, double time, Instant now) {
  unknown_s = is_known ? 0 : unknown_s + time;
  if (!is_known) {
    unknown.time += time;
    unknown.x += x * time;
    return;
  }
  phase->recent.add(now, std::exp(phase->performance(x).mean) * time);
}

std::optional<double> WorkBelief::be_known(Instant now) {
  const auto [time, sum] = std::exchange(unknown, {});
  if (time <= 0) return std::nullopt;
  const double x = sum / time;
  phase->recent.add(now, std::exp(phase->performance(x).mean) * time);
  return (std::exp(lower_bound(x)) - std::exp(-x)) * time;
}

void WorkBelief::stay_unknown(Instant now) {
  const auto [time, sum] = std::exchange(unknown, {});
  if (time > 0) unknown_recent.add(now, std::exp(-sum / time) * time);
}

void WorkBelief::make(const ReadingBatch& reference, Megahertz highest, const std::string& name,
                      Instant began) {
  phase = make_phase(reference, highest, priors, unsteady);
  phase->name = name;
  phase->visits.began = began;
  phase->visits.in_job = true;
  unknown_recent = {};  // probably it
}

std::size_t WorkBelief::find_by_name(const std::string& name) const {
  const auto found = std::find_if(known.rbegin(), known.rend(), [&](const WorkPhase& each) {
    return speaks(each) && each.name == name;
  });
  return found == known.rend() ? known.size() : static_cast<std::size_t>(known.rend() - found) - 1;
}

std::size_t WorkBelief::find_by_readings(const ReadingBatch& seen, const PhaseSeen& by) const {
  const auto named = [&](const WorkPhase& each) {
    const bool by_the_same = speaks(each) ? by.hears : !by.awaits_beats;
    return each.name == by.name && by_the_same && (by.at_highest || each.visits.in_job);
  };
  std::size_t found = known.size();
  double highest = 0;
  for (std::size_t i = known.size(); i-- > 0;) {
    if (!by.restless && known[i].visits.is_doubted(by.now)) continue;
    if (!named(known[i]) || !fits(known[i], seen)) continue;
    const double costs = -known[i].performance(0.3).mean;
    if (found < known.size() && costs <= highest) continue;
    found = i;
    highest = costs;
  }
  return found;
}

void WorkBelief::take_up(std::size_t at, Instant now) {
  phase = std::move(known[at]);
  known.erase(known.begin() + static_cast<std::ptrdiff_t>(at));
  phase->visits.begin_again(now);
}

void WorkBelief::leave(const PhaseLeft& how, const AssureOptions& options, Saving& settled) {
  if (!phase) return;
  phase->beats = how.beats;
  phase->visits.end(how.now);
  // Work is not faster at a low clock: such a phase was made of two.
  const bool sane = phase->plausible(0.3) && phase->curves.strain() < kOfTwo;
  const bool learned = !phase->curves.signals.empty() && sane && how.now;
  if (!learned || how.mixed) settle(*phase, options, settled);
  if (learned && !how.mixed) {
    const bool lasting =
        phase->visits.returned || how.restless || *how.now - phase->visits.began > kNewPhase;
    if (options.models != nullptr && phase->name.empty() && lasting)
      phase->id = options.models->keep(to_model(*phase, options.chip));
    if (known.size() >= kMostPhases) {
      settle(known.front(), options, settled);
      known.erase(known.begin());
    }
    known.push_back(*std::move(phase));
  }
  phase.reset();
}

Saving WorkBelief::saving_of(const WorkPhase& of, const AssureOptions& options) const {
  if (!options.dry_run) return of.saving();
  if (!allowed) return {};
  const double most = allowed->max_loss;
  const Forecast likely =
      forecast_by_alike(options.prior, allowed->envelope,
                        {.clock = allowed->envelope.highest(),
                         .gpu_utilisation = Fraction(of.reference.gpu_utilisation),
                         .memory_utilisation = of.reference.memory_utilisation},
                        {&most, 1}, left_out)
          .front();
  // A governed run loses no more than it promises, and stays at the highest clock where it saves
  // nothing.
  const auto within = [](const ShareEstimate& share, double limit) {
    const double top = std::clamp(share.high, 0.0, limit), low = std::clamp(share.low, 0.0, top);
    return ShareEstimate{(low + top) / 2, low, top};
  };
  return of.spent.would_be(within(likely.saving, 0.95),
                           within(likely.loss, std::max(0.0, most - kRounding)));
}

void WorkBelief::settle(WorkPhase& of, const AssureOptions& options, Saving& to) const {
  to += saving_of(of, options);
  of.spent.clear();
}

}  // namespace derate
