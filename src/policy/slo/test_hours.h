// Hours of an engine whose steps are late with known probabilities that depend on each other, and
// how often a bound is passed in them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "policy/slo/violation_bound.h"

namespace derate {

struct HoursSpec {
  int hours = 100;
  double steps = 90'000;  // an hour, 25 a second
  int most_in_step = 16;
  double alpha = 0.01;
  std::uint64_t seed = 1;
};

// The probability that a step is late stays for a while and changes: calm, a queue, a burst in
// which every fifth step is late. The batch changes with it.
struct EngineState {
  double late = 0.001;
  int batch = 4;
  double lasts = 500;  // steps, on average
};

inline EngineState next_state(std::mt19937_64& random, int most) {
  std::uniform_real_distribution<double> share(0, 1);
  EngineState out;
  const double kind = share(random);
  out.late = kind < 0.7 ? 0.004 * share(random) : kind < 0.95 ? 0.05 * share(random) : 0.2;
  out.batch = 1 + static_cast<int>(share(random) * most * 0.999);
  out.lasts = 50 + 2000 * share(random);
  return out;
}

// Whether the mean of the conditional probabilities was above the bound at any moment of an hour.
inline bool passes_bound(const HoursSpec& spec, std::mt19937_64& random) {
  ViolationBound bound(spec.most_in_step, spec.alpha);
  double expected = 0, steps = 0;  // of late tokens
  while (steps < spec.steps) {
    const EngineState state = next_state(random, spec.most_in_step);
    double left = std::exponential_distribution<double>(1 / state.lasts)(random);
    while (left > 0) {
      // Steps until one is late, or the state ends.
      const double to_late =
          1 + static_cast<double>(std::geometric_distribution<long>(state.late + 1e-9)(random));
      const double until = std::min(std::ceil(left), to_late);
      expected += until * state.batch * state.late;
      bound.add(until * state.batch, 0);
      // The moment before the late step is known: the bound is lowest then.
      if (expected / bound.tokens() > *bound.at_most()) return true;
      if (to_late <= until) bound.add(0, state.batch);
      left -= until;
      steps += until;
    }
  }
  return false;
}

inline int hours_passed(const HoursSpec& spec) {
  std::mt19937_64 random(spec.seed);
  int passed = 0;
  for (int i = 0; i < spec.hours; ++i) passed += passes_bound(spec, random) ? 1 : 0;
  return passed;
}

}  // namespace derate
