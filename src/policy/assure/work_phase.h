// A phase of work as `assure` knows it: how it follows the clock, and what it is known again by.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/model_cache.h"
#include "model/curve_priors.h"
#include "model/power_curve.h"
#include "policy/assure/spending.h"
#include "signal/counters.h"
#include "signal/progress_count.h"
#include "signal/readings.h"

namespace derate {

// One tick's readings.
struct ReadingTick {
  SignalValues signals;
  double clock = 0;                       // MHz
  std::optional<double> gpu_utilisation;  // a share, where it is of this phase alone
  std::optional<double> power;            // W, where it is of this clock and phase
  bool heard = false;                     // of work that speaks: power tells nothing of progress
  bool capped = false;
  bool may_wait = false;  // for other GPUs: WorkStatus
};

// Means of some readings at one clock.
struct ReadingBatch {
  double x = 0;  // log of the highest clock over the one held
  std::array<Readings, kSignals> signals;
  Readings clock, gpu_utilisation, power;
  bool capped = false;    // the power limit moved the clock meanwhile
  bool may_wait = false;  // others may have set the rate of some beats

  // `highest`: what x is relative to.
  void add(const ReadingTick& tick, Megahertz highest);
  void clear();
};

// So near the reference, of x, readings are of it.
inline constexpr double kAtReference = 0.01;

// The rate of beats at the reference, as it was read there: in logs.
class ReferenceRate {
 public:
  void add(double log_rate, double variance);
  // Its sd is infinite before the first reading.
  Belief rate() const { return {mean_, 1 / std::sqrt(precision_)}; }

 private:
  double mean_ = 0, precision_ = 0;
};

// What a whole reading of the signal is rounded to.
double step_of(Signal signal);

// Of the log of the batch's mean of that signal.
double relative_variance(const ReadingBatch& look, Signal signal);
// How many readings it takes until that is known, from what is read so far.
double readings_needed(const ReadingBatch& look, Signal signal, double relative_sd);

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
  std::vector<Signal> signals;  // the counters of `curve`
  bool saturated = false;       // the memory counter, at the reference
  double overstated = 0;        // CurvePriors
  ProgressCurve curve;
  std::optional<ProgressCurve> corrected;  // ... by what power says of a counter's bias
  ProgressCurve with_power;  // as one more counter: a witness that may warn, not assure
  PowerCurve power;
  ProgressCurve metered;  // as with_power, of all readings of power: what savings are told by
  std::optional<Instant> metered_at, learned_at;
  double reference_x = 0;                              // what the promise is relative to
  bool reference_capped = false;                       // by the power limit
  double gpu_utilisation = 1, gpu_utilisation_sd = 0;  // there
  std::string name;                                    // as the application calls it
  Duration referred{};                                 // time spent at the reference, in all
  Duration lasted{};                                   // on earlier visits
  int visits = 0;                                      // earlier ones
  Instant began{};
  bool returned = false;           // known from before
  std::optional<Instant> doubted;  // taken for what it was not
  std::int64_t id = 0;             // in the model cache
  Spending spent;                  // that no account has yet
  RecentWork recent;
  Readings beats;  // holds none: what was learned of their noise in this phase
  ReferenceRate reference_rate;

  // What progress is judged by.
  const ProgressCurve& assuring() const { return corrected ? *corrected : curve; }
  // Log of performance at `x` relative to the reference, its sd widened where counters contradict
  // each other, or power them, and by what the curve's form leaves out.
  Belief performance(double x) const;
  // Log of the energy that work takes at the reference over that at `x`.
  Belief energy_at_reference(double x) const;
  // Whether the power limit alone might hold the clock at `x` by now.
  bool limit_allows(double x) const;
  // What was saved of `spent`, or would be in a dry run.
  Saving saving(bool dry_run) const;
  // The most of any counter (ProgressCurve::strain).
  double strain() const;
  // Whether the counters do not say that work is faster at that clock.
  bool plausible(double x) const;
  // The least that it is, `z` standard deviations sure: never above 0, and never less than the
  // clock's own ratio.
  double lower_bound(double x, double z) const;
};

// What is believed of a phase at any number of clocks: what does not depend on them is worked out
// once. Of the phase as it is now, and no longer there than it.
class PhaseOutlook {
 public:
  explicit PhaseOutlook(const WorkPhase& phase);

  Belief performance(double x) const;
  bool plausible(double x) const;
  double lower_bound(double x, double z) const;

 private:
  double at_worst(double x, double z) const;
  double overstated(double x) const;

  const WorkPhase& phase_;
  double strain_ = 1, strain_with_power_ = 1;
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

// The signals that say something: of the memory counters the finer, of the pipes the busiest and
// the tensor pipe; a beat alone where there is one. What stays below 3 % at the reference says
// nothing; a saturated counter speaks only where it is known how saturated counters err.
std::vector<Signal> informative_signals(const ReadingBatch& reference, Megahertz highest,
                                        const CurvePriors& priors);
WorkPhase make_phase(const ReadingBatch& reference, Megahertz highest, const CurvePriors& priors);

// Whether the work itself says how far it is.
bool speaks(const WorkPhase& phase);

// The same phase once its counters have been read at x for long, and show there what is expected.
WorkPhase well_read(WorkPhase phase, double x);

// Adds a mean of the power at x, read until `time`, to what savings are told by.
void meter(WorkPhase& phase, Instant time, double x, Watts mean, double relative_variance);

// Adds what was seen. Without effect for signals that the phase does not have.
void learn(WorkPhase& phase, const ReadingBatch& look, Instant time);

// Whether this is what the phase would show at that clock: its counters, and utilisation and power
// besides.
bool counters_fit(const WorkPhase& phase, const ReadingBatch& look);
bool fits(const WorkPhase& phase, const ReadingBatch& look);

// For the model cache and back. Empty when the model is not of these priors' form.
PhaseModel to_model(const WorkPhase& phase, const std::string& chip);
std::optional<WorkPhase> from_model(const PhaseModel& model, const CurvePriors& priors);

}  // namespace derate
