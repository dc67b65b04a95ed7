// Readings of the work: the clock that the GPU has, what its counters and its power show at it, and
// what the work says of its own progress.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/counter_watch.h"
#include "policy/assure/assure_options.h"
#include "policy/assure/renewal.h"
#include "policy/assure/standstill.h"
#include "policy/assure/work_phase.h"
#include "signal/progress_count.h"

namespace derate {

inline constexpr int kFewest = 3, kMostInBatch = 25;  // readings
// The clock held is one while it stays within this share.
inline constexpr double kOneClock = 0.03;

// The clock that the GPU has.
struct HeldClock {
  Megahertz clock{};
  Instant since{};        // with the work as it is
  Instant clock_since{};  // with whatever work

  // Whether it is another now. The clock really held counts, not the one requested, and whatever
  // moved it; `ours`: it may be the last request that does.
  bool follow(const Estimate& estimate, bool ours);
};

// How long a change of the clock takes to show in the counters and in power, as seen at the job's
// start, while the readings rise. Work that is slow to start makes it seem longer: the safe side.
struct SensorWindow {
  Instant began{};
  Duration counters{}, power{};
  double peak = 0, peak_power = 0;

  void begin(Instant now, Duration settle);
  bool rises(const Estimate& estimate);
  // `interval`: from one renewal of the counters to the next; empty: not known, so that it may be
  // as long as `settle`.
  Duration counters_settled(Duration settle, std::optional<Duration> interval, double tick) const;
  Duration power_settled(Duration settle) const;
};

// Readings since the clock or the work changed last.
struct Gathered {
  ReadingBatch look;
  std::vector<ReadingTick> ticks;     // what `look` was made of
  std::deque<ReadingTick> held_back;  // the newest, where they may be of the next phase already

  void take(const ReadingTick& tick, std::size_t most_held_back, Megahertz highest);
  // Takes what may be of the next phase out again.
  void take_back(std::size_t doubtful, Megahertz highest);
  ReadingBatch all(Megahertz highest) const;
  Readings& beats() { return look.of(Signal::beat); }
  const Readings& beats() const { return look.of(Signal::beat); }
  bool has_few() const { return look.clock.count() < kFewest; }
  // Whether it differs so much from the one before that the two are no one phase's.
  bool parts_from_last(const ReadingTick& tick) const;
  void clear();
  void drop();  // and what was held back
};

// Progress as the work reports it, or as it is counted of its launches.
struct Voice {
  ProgressRate beats;
  std::optional<double> beat;  // a reading of them
  bool hears = false;          // there are beats, and they come often enough to learn by
  bool told = false;           // ... by what is launched, which also names the phase:
  std::string phase;
  // Beats that began after a phase was learned by counters: it is learned anew by them, once;
  // missed: that gave no phase that speaks.
  enum class Late { none, awaited, missed } late = Late::none;

  // Whether there is a beat that was not there before.
  bool hear(const Estimate& estimate, const HeldClock& held);
  // The phase that launches named before, where they name another now.
  std::optional<std::string> leaves(const Estimate& estimate);
  // Until two beats have come, however they fall.
  Duration wait() const { return hears ? 2 * beats.interval() : Duration{}; }
};

// The counters, and whether they stand still.
struct Counters {
  SignalValues newest;
  Standstill utilisation, activity;
  Renewal utilisation_renewal, activity_renewal;  // over all jobs: they are the driver's
  bool renewed = true;                            // at this tick
  bool has_moved = false;                         // ... or since the last
  int renewals = 0;                               // since the clock or the work moved
  bool stood = false;                             // at the last tick: no counter showed anything

  // The clock or the work is another: what is as before is of before.
  void moved();
  // From one renewal to the next of the source that is learned from. Empty: not known yet.
  std::optional<Duration> interval() const;
  // Whether no counter shows anything; `began`: that is so for the first time.
  struct Standing {
    bool stands = false, began = false;
  };
  Standing stand(const Estimate& estimate, bool hears);
  // What they show, without those that stand still.
  void read(const Estimate& estimate, Megahertz highest);
};

// Means of the power from the energy counter, over a second at least.
struct MeanPowerMeter {
  struct Reading {
    Instant time{};
    Joules energy{};
  };
  std::optional<Reading> last;
  bool counter = false;  // the GPU has an energy counter that counts
  CounterWatch watch;

  struct Mean {
    Watts power;
    double variance;  // relative
  };
  // Takes each reading; true if the counter has moved.
  bool see(Instant now, Joules energy);
  // The mean between readings at which the counter has moved. Empty: there is none yet.
  std::optional<Mean> mean(Instant now, Joules energy);
};

struct WorkReadings {
  HeldClock held;
  SensorWindow window;
  Gathered gathered;
  Voice voice;
  Counters counters;
  MeanPowerMeter meter;
  std::optional<Instant> parted;  // the visit at which readings of two phases were parted

  // Of the work's `name`: a new job, or in the midst of one.
  void begin(const Estimate& estimate, Duration settle, bool in_its_midst);
  // The clock or the work is another.
  void clear();
  // How long after a change of the clock the counters show it: as long as their window, or two
  // intervals of those that are renewed seldom.
  Duration shows_after(const AssureOptions& options) const;
  bool counters_show(Instant now, const AssureOptions& options) const;
  // The tick's readings. `of_this_phase`: GPU utilisation is of this phase alone; `speaks`: of a
  // phase that says how far it is, whose counters do not count.
  ReadingTick tick(const Estimate& estimate, Duration settle, bool of_this_phase, bool speaks);
  // How many of the newest may be of the next phase when an alarm is raised.
  std::size_t doubtful(double tick_s) const;
  // Of work that speaks nothing is known before it has spoken of the present clock: twice.
  bool awaits_beat(const std::optional<WorkPhase>& phase) const;
  // Whether the mean of each of those signals is known so well; where none shows anything, more
  // readings would not either.
  bool enough(std::span<const Signal> signals, double relative_sd) const;
};

}  // namespace derate
