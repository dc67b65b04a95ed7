// A phase of work as `assure` knows it: how it follows the clock, and what it is known again by.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "core/model_cache.h"
#include "policy/assure/phase_curves.h"
#include "policy/assure/spending.h"

namespace derate {

// So near the reference, of x, readings are of it.
inline constexpr double kAtReference = 0.01;

// The rate of beats at the reference, as it was read there: in logs.
class ReferenceRate {
 public:
  void add(double log_rate, double variance);
  // It has moved by that since.
  void move(const Belief& by) {
    mean_ += by.mean;
    precision_ = 1 / (1 / precision_ + by.sd * by.sd);
  }
  // Its sd is infinite before the first reading.
  Belief rate() const { return {mean_, 1 / std::sqrt(precision_)}; }

 private:
  double mean_ = 0, precision_ = 0;
};

// The highest clock that the work had, to which the promise is relative, and what was read there.
struct PhaseReference {
  double x = 0;
  bool capped = false;  // by the power limit
  // Neither was it the highest clock that ran, nor did the power limit hold it: performance is
  // bounded by the ratio of clocks alone, whatever the counters say.
  bool unproven = false;
  bool ignores_counters = false;  // the same, by the user's choice: CurvePriors
  double gpu_utilisation = 1, gpu_utilisation_sd = 0;
  std::optional<Fraction> memory_utilisation;
  ReferenceRate rate;

  // Whether the power limit alone might hold the clock at `at` by now.
  bool limit_allows(double at) const;
  // Whether a clock that ran, at `at`, is above it: then it is no reference.
  bool is_voided_by(double at) const;
  bool utilisation_fits(const ReadingBatch& look) const;
};

// The present visit to a phase, and those before.
struct PhaseVisits {
  int earlier = 0;
  Duration lasted{};               // earlier ones
  Duration referred{};             // time spent at the reference, in all
  Instant began{};                 // the present one
  bool returned = false;           // known from before
  bool looked = false;             // at a low clock, to learn what it costs
  bool in_job = false;             // of the present job, which has shown it at the highest clock
  std::optional<Instant> doubted;  // taken for what it was not

  void begin_again(Instant now);
  // `now`: empty where it is not known when the visit ended.
  void end(std::optional<Instant> now);
  // How long the phase has lasted in all.
  Duration age(Instant now) const { return lasted + (now - began); }
  // What is left of the present visit, if it lasts as long as earlier ones did on average.
  Duration left(Instant now) const { return lasted / std::max(1, earlier) - (now - began); }
  bool is_doubted(Instant now) const;
};

// Work done of late, in seconds at the reference: what lies longer back counts for less.
class RecentWork {
 public:
  void add(Instant now, double work);
  double at(Instant now) const;

 private:
  double work_ = 0;
  Instant at_{};
};

struct WorkPhase {
  PhaseCurves curves;
  PhaseReference reference;
  PhaseVisits visits;
  std::string name;     // as the application calls it
  std::int64_t id = 0;  // in the model cache
  Spending spent;       // that no account has yet
  RecentWork recent;
  Readings beats;  // holds none: what was learned of their noise in this phase

  // Log of performance at `x` relative to the reference, its sd widened where counters contradict
  // each other, or power them, and by what the curve's form leaves out.
  Belief performance(double x) const;
  // Log of the energy that work takes at the reference over that at `x`.
  Belief energy_at_reference(double x) const;
  // The saving of `spent`.
  Saving saving() const;
  // Whether the counters do not say that work is faster at that clock.
  bool plausible(double x) const { return is_plausible(x, performance(x)); }
  // The least that it is, `z` standard deviations sure: never above 0, and never less than the
  // clock's own ratio.
  double lower_bound(double x, double z) const;
  // The same by the ratio of the clocks alone, and what kernels may lose beyond it.
  double by_ratio(double x) const { return std::min(0.0, reference.x - x) - beyond_ratio(x); }

 private:
  bool is_plausible(double x, const Belief& performance) const;
  double at_worst(double x, double z) const;
  double beyond_ratio(double x) const;
  double overstated(double x) const;
};

// A clock, by what is believed at it: the least log of performance that is sure enough, and the log
// of the energy that work takes; both relative.
struct Prospect {
  Megahertz clock{};
  double lower_bound = 0, energy = 0;
};

// Of those whose lower bound is `promised` at least, the one of least energy; of those that are
// about as good the one of the highest clock. `prospects`, by clock upwards, are not empty; where
// none keeps it: the highest.
Prospect best_of(std::span<const Prospect> prospects, double promised);

// One clock for phases that take turns, each with a weight in seconds of its work at the reference,
// and for work of which nothing is known. x as in model/progress_curve.h.
struct MixPart {
  const WorkPhase* phase;
  double work;
};
Prospect prospect_of_mixture(std::span<const MixPart> parts, double unknown_work, double x,
                             double z);

// `unsteady`: as LaunchLevel has it.
WorkPhase make_phase(const ReadingBatch& reference, Megahertz highest, const CurvePriors& priors,
                     double unsteady = 1);

// Whether the work itself says how far it is.
bool speaks(const WorkPhase& phase);

// Adds what was seen. Without effect for signals that the phase does not have.
void learn(WorkPhase& phase, const ReadingBatch& look, Instant time);

// Whether this is what the phase would show at that clock: its counters, and utilisation and power
// besides.
bool fits(const WorkPhase& phase, const ReadingBatch& look);

// For the model cache and back. Empty when the model is not of these priors' form.
PhaseModel to_model(const WorkPhase& phase, const std::string& chip);
std::optional<WorkPhase> from_model(const PhaseModel& model, const CurvePriors& priors);

}  // namespace derate
