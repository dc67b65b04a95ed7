#include "policy/assure/watch.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Alarms that follow each other, a job's start being one, so closely on average: phases too short
// to follow, whose mixture is governed; and too short to be told apart, which are one phase.
constexpr std::size_t kRestless = 3, kMixed = 6;
constexpr double kWindowsFollowed = 6;  // ... of the counters, if that is longer
// Without an alarm: phases are long again.
constexpr Duration kRestAfter = std::chrono::seconds(20);
constexpr double kForm = 0.015;  // what a quadratic leaves of a reading, relative, at most
// Relative sd of one reading of beats, at least: where in a step it begins and ends, and waits that
// fall into some windows, are no other work.
constexpr double kBeatEdge = 0.03;

}  // namespace

void PhaseWatch::begin(Instant now) {
  clear();
  alarms = {now};
  restless = mixed = false;
}

void PhaseWatch::clear() {
  innovations = {};
  jumps.clear();
}

void PhaseWatch::alarm(Instant now, Duration window) {
  alarms.push_back(now);
  if (alarms.size() > kMixed) alarms.erase(alarms.begin());
  restless = come_within(kRestless, std::max(kFollowed, kWindowsFollowed * seconds(window)));
  mixed = come_within(kMixed, kToldApart);
}

void PhaseWatch::rest(Instant now) {
  if (restless && now - alarms.back() > kRestAfter) restless = mixed = false;
}

bool PhaseWatch::come_within(std::size_t count, double apart) const {
  if (alarms.size() < count) return false;
  const Duration span = alarms.back() - alarms[alarms.size() - count];
  return seconds(span) < apart * static_cast<double>(count - 1);
}

bool PhaseWatch::drifts(const WorkPhase& phase, const ReadingBatch& look,
                        const SignalValues& newest) {
  for (std::size_t k = 0; k < phase.curves.signals.size(); ++k) {
    const auto i = static_cast<std::size_t>(phase.curves.signals[k]);
    if (!newest[i] || phase.curves.progress.level_sd(k) > 1) continue;
    const Belief belief = phase.curves.progress.reading(k, look.x);
    const double expected = std::exp(belief.mean), off = *newest[i] - expected;
    // A counter that rests against its end has no noise, until it moves by one.
    const double step = step_of(phase.curves.signals[k]);
    const double edge = phase.curves.signals[k] == Signal::beat ? kBeatEdge * expected : step / 2;
    const double noise = std::max(look.signals[i].variance(step), edge * edge);
    // What the curve's form leaves of this clock stays, however long it is looked at.
    const double beyond = std::copysign(std::max(0.0, std::abs(off) - kForm * expected), off);
    if (innovations[i].add(beyond / std::sqrt(noise + std::pow(expected * belief.sd, 2))))
      return true;
  }
  return false;
}

}  // namespace derate
