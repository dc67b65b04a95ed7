// The part of the work's account that `assure` spends: the performance that its clock leaves, the
// time spent to learn, and the energy that was saved.
#pragma once

#include <memory>
#include <utility>

#include "core/estimate.h"
#include "policy/assure/assure_options.h"
#include "policy/assure/spending.h"
#include "policy/work_account.h"

namespace derate {

// The shortest job whose promise is judged, and the share of what it may lose that one look at a
// low clock may cost.
inline constexpr Duration kShortestJob = std::chrono::seconds(30);
inline constexpr double kLookShare = 0.2;

// A tick's energy: how long the tick was, and the clock that was requested. `unsaved`: without
// work, or where the power limit would have held that clock, too, nothing is saved.
struct SpentTick {
  Duration time{};
  Megahertz asked{}, lowest{};
  bool unsaved = false;
};

struct Account {
  std::shared_ptr<WorkAccount> work;
  std::size_t domain = 0;  // the one that it spends for
  double delta = 0;
  bool saves_up = true;  // what one phase earns another may spend
  double counted = 1;    // performance, as the last tick was counted
  // What was counted, s: of how much time, and the work done in it.
  struct Counted {
    double time = 0, work = 0;
  } since_beat, over_beat;  // the last; from the one before to that
  Duration probed{};        // at clocks to learn from
  Saving settled;           // of phases that are closed
  Spending pending;         // of a phase that is not known yet

  // A job begins: its first kernels ran before they were seen, at the clock at which the GPU was
  // parked.
  void begin(const Estimate& estimate, const AssureOptions& options);
  void take_promise(const WorkStatus& status, double own_delta);
  void count(double performance, Duration time);
  void hear_beat() { over_beat = std::exchange(since_beat, {}); }
  // What beats measured takes the place of what was counted on: of that only what the highest clock
  // gives is not sure. `reference`: the log of the rate there; `z` as in assure's options.
  void count_measured(double beat_rate, const Belief& reference, double z);
  // When launches tell that another phase has begun, it has gone on for a window or two, in which
  // the work was counted as the phase before. `in_truth`: the performance of this one.
  void count_late(double in_truth, double tick);

  // Of performance, for now: what was earned is spent over some seconds, and what was lost is made
  // good. A dry run runs at full speed: it would not have earned what it seems to.
  double earned(bool dry_run) const;
  // The same of what was saved and not needed, over some visits of phases that take turns.
  double spare() const;
  // The log of performance to keep, of that earned; and of a phase with that share of the loss,
  // which may spend what others saved over what is left of the visit.
  double promised(double earned) const;
  double promised_of(double share, Duration left) const;

  // For work in phases to be learned at the highest clock, of a job's time so far. `told`: launches
  // name the phases, so that their readings are exact.
  Duration budget(Duration age, bool told) const;
  bool may_probe(Duration age, bool told, Duration window) const;
  // Whether a first look at a low clock, or work that is not known at a low one, costs no more than
  // the shortest job may lose.
  bool may_look() const { return work->saved_s() >= -0.2 * delta * seconds(kShortestJob); }
  bool may_lose(double s) const {
    return work->saved_s() + kLookShare * delta * seconds(kShortestJob) > s;
  }
};

// Adds a tick's energy to what a phase has spent.
void count_spending(Spending& to, const Estimate& estimate, const SpentTick& tick,
                    const AssureOptions& options);

}  // namespace derate
