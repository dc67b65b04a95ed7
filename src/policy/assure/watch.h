// The detection of other work, and of the rate at which the work changes: phases too short to
// follow are governed as one mixture.
#pragma once

#include <array>
#include <vector>

#include "policy/assure/change_watch.h"
#include "policy/assure/work_phase.h"

namespace derate {

// Phases that change more often than that are governed as one mixture; than that, s, as one phase.
inline constexpr double kFollowed = 4.5, kToldApart = 0.8;

struct PhaseWatch {
  std::array<Cusum, kSignals> innovations{};  // by Signal
  ChangeWatch jumps;
  bool jumped = false;  // the newest readings, against what was read before at the same clock
  std::vector<Instant> alarms;
  bool restless = false;  // phases too short to follow: one clock for their mixture
  bool mixed = false;     // ... to be held apart: their mixture is one phase

  // Other work begins, or the same is judged anew.
  void begin(Instant now);
  void clear();
  // The work has changed. `window`: how far back its counters reach.
  void alarm(Instant now, Duration window);
  // After a while without an alarm phases are long again.
  void rest(Instant now);

  // Whether the last alarms, so many, follow each other by less than that on average, s.
  bool come_within(std::size_t count, double apart) const;
  bool phases_take_turns() const { return come_within(2, kFollowed); }
  // Whether the newest readings of the phase's signals have drifted from what it should show.
  bool drifts(const WorkPhase& phase, const ReadingBatch& look, const SignalValues& newest);
};

}  // namespace derate
