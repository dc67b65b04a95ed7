// The curves of one phase: what its signals and its power say of progress and energy at any clock.
// x as in model/progress_curve.h.
#pragma once

#include <optional>
#include <vector>

#include "core/model_cache.h"
#include "model/curve_priors.h"
#include "model/power_curve.h"
#include "policy/assure/change_watch.h"
#include "policy/assure/counter_trend.h"
#include "policy/assure/reading_batch.h"

namespace derate {

// Of beats that are launches: how the work in one may change.
struct LaunchLevel {
  static constexpr double kMostUnsteady = 100;

  bool moves = false;     // the level of the beats has a trend
  double unsteady = 1;    // by so much more than steady launches its sds allow for
  bool outgrown = false;  // ... which was too little: what was learned is too sure
  // The squares of late innovations over their variances, on average.
  double surprise = 1;
  Cusum innovations{};
  // By how much the log of the rate has moved by itself since it was read at the reference.
  double moved = 0;
  double x = -1;  // at the last reading
};

struct PhaseCurves {
  std::vector<Signal> signals;  // the counters of `progress`
  bool saturated = false;       // the memory counter, at the reference
  double overstated = 0;        // CurvePriors
  bool foreign = false;         // CurvePriors
  ProgressCurve progress;
  std::optional<ProgressCurve> corrected;  // ... by what power says of a counter's bias
  ProgressCurve with_power;  // as one more counter: a witness that may warn, not assure
  PowerCurve power;
  ProgressCurve metered;  // as with_power, of all readings of power: the curve of savings
  std::optional<Instant> metered_at, learned_at;
  // Of each counter, by how much the log of its level may have moved by itself since it was read at
  // the reference: its gain wanders.
  struct Movement {
    CounterTrend trend;
    double moved = 0;
  };
  std::vector<Movement> movements;
  LaunchLevel launches;

  // The one by which progress is judged.
  const ProgressCurve& assuring() const { return corrected ? *corrected : progress; }
  // The most of any counter (ProgressCurve::strain).
  double strain() const;

  // Adds what was seen, at the reference or not. Without effect for signals that the phase does not
  // have.
  void learn(const ReadingBatch& look, Instant time, bool at_reference);
  // Adds a mean of the power at x, read until `time`, to the curve of savings.
  void meter(Instant time, double x, Watts mean, double relative_variance);
  // As after long readings of the counters at x that show what is expected.
  void assume_read(double x);

  // Whether the counters are what they would be at that clock; and power, where it is known.
  bool counters_fit(const ReadingBatch& look) const;
  bool power_fits(const ReadingBatch& look) const;
};

// The signals that say something: of the memory counters the finer, of the pipes the busiest and
// the tensor pipe; a beat alone where there is one. What stays below 3 % at the reference says
// nothing; a saturated counter speaks only where it is known how saturated counters err.
std::vector<Signal> informative_signals(const ReadingBatch& reference, Megahertz highest,
                                        const CurvePriors& priors);
// Of those signals; nothing is learned yet.
// `unsteady`: as LaunchLevel has it.
PhaseCurves make_curves(const ReadingBatch& reference, Megahertz highest, const CurvePriors& priors,
                        double unsteady = 1);

// For the model cache and back. Empty when the model is not of these priors' form.
void put_curves(PhaseModel& model, const PhaseCurves& curves);
std::optional<PhaseCurves> curves_of(const PhaseModel& model, const CurvePriors& priors);

}  // namespace derate
