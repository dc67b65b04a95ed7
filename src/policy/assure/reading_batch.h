// Readings of one tick, and their means at one clock.
#pragma once

#include <array>
#include <optional>

#include "signal/counters.h"
#include "signal/readings.h"

namespace derate {

struct ReadingTick {
  SignalValues signals;
  double clock = 0;                       // MHz
  std::optional<double> gpu_utilisation;  // a share, where it is of this phase alone
  std::optional<double> power;            // W, where it is of this clock and phase
  bool heard = false;                     // of work that speaks: power tells nothing of progress
  bool capped = false;
  bool may_wait = false;  // for other GPUs: WorkStatus
  bool launched = false;  // its beats are launches, each of which may stand for other work
};

struct ReadingBatch {
  double x = 0;  // log of the highest clock over the one held
  std::array<Readings, kSignals> signals;
  Readings clock, gpu_utilisation, power;
  bool capped = false;    // the power limit moved the clock meanwhile
  bool may_wait = false;  // others may have set the rate of some beats
  bool launched = false;  // some beats are launches

  Readings& of(Signal signal) { return signals[static_cast<std::size_t>(signal)]; }
  const Readings& of(Signal signal) const { return signals[static_cast<std::size_t>(signal)]; }
  // `highest`: what x is relative to.
  void add(const ReadingTick& tick, Megahertz highest);
  void clear();

  // Variance of the log of the signal's mean.
  double relative_variance(Signal signal) const;
  // How many readings it takes until that is known, from what is read so far.
  double readings_needed(Signal signal, double relative_sd) const;
  // Variance of the log of the clock, as NVML shows it.
  double clock_variance() const;
};

// What a whole reading of the signal is rounded to.
double step_of(Signal signal);

}  // namespace derate
