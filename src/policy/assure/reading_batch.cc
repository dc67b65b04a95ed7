#include "policy/assure/reading_batch.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Relative, of the clock that NVML shows while the power limit moves it: it read from 0.7 % below
// to 2 % above the rate of work that only follows the clock (docs/real-gpu.md).
constexpr double kCappedClock = 0.01;
// Readings of beats that spread much less than this are of steady work, whose noise is where in a
// step they begin and end: of recorded launches in windows of 0.2 s 0.1 to 1.8 %, and 13 % where
// each step is other work. Of the variance of steady ones the work itself has 0.04 to 0.1
// (tests/fixtures/h200-launches).
constexpr double kBeatsSteady = 0.06, kBeatsVary = 0.1;

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
  return std::max(kBeatsVary, std::min(varying_share(relative_variance_of_one),
                                       look.of(Signal::beat).independent_share()));
}

}  // namespace

void ReadingBatch::add(const ReadingTick& tick, Megahertz highest) {
  for (std::size_t i = 0; i < kSignals; ++i)
    if (tick.signals[i]) signals[i].add(*tick.signals[i]);
  if (tick.power) power.add(*tick.power);
  if (tick.power && !tick.heard) of(Signal::power).add(*tick.power);
  capped |= tick.capped;
  may_wait |= tick.may_wait;
  launched |= tick.launched;
  clock.add(tick.clock);
  x = std::max(0.0, std::log(highest.value() / clock.mean()));
  if (tick.gpu_utilisation) gpu_utilisation.add(*tick.gpu_utilisation);
}

void ReadingBatch::clear() {
  for (Readings& readings : signals) readings.clear();
  capped = may_wait = launched = false;
  clock.clear();
  power.clear();
  gpu_utilisation.clear();
}

double ReadingBatch::relative_variance(Signal signal) const {
  const Readings& readings = of(signal);
  const double independent = readings.relative_variance(step_of(signal));
  if (signal != Signal::beat) return independent;
  return independent *
         std::max(1.0 / readings.count(), falling_share(*this, independent * readings.count()));
}

double ReadingBatch::readings_needed(Signal signal, double relative_sd) const {
  const Readings& readings = of(signal);
  const double of_one = readings.relative_variance(step_of(signal)) * readings.count();
  const double independent = of_one / (relative_sd * relative_sd);
  if (signal != Signal::beat) return independent;
  return std::max(std::sqrt(independent), falling_share(*this, of_one) * independent);
}

double ReadingBatch::clock_variance() const { return capped ? kCappedClock * kCappedClock : 0; }

double step_of(Signal signal) {
  if (signal == Signal::power) return 1;
  return signal == Signal::memory ? 0.01 : 1e-4;
}

}  // namespace derate
