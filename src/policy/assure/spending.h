// Time and energy spent on a phase of work, by the clock it had, and the saving against the same
// work at the reference clock. The saving goes by the last estimate of the phase, so that what was
// learned late counts for all of it.
#pragma once

#include <functional>
#include <map>

#include "core/saving.h"
#include "model/linear_belief.h"

namespace derate {

struct Spent {
  Duration time{};
  Joules energy{};

  void add(const Spent& more) { time += more.time, energy += more.energy; }
};

class Spending {
 public:
  // By x, the log of the highest clock over the one held: the log of what the same work takes at
  // the reference over what it takes here.
  using Ratio = std::function<Belief(double x)>;

  // At the highest clock, or without work: nothing is saved.
  void add_unsaved(const Spent& spent) { unsaved_.add(spent); }
  void add(double x, const Spent& spent);
  void add(const Spending& more);
  void clear() { *this = {}; }
  Duration time() const { return time_; }

  Saving saving(const Ratio& time, const Ratio& energy) const;
  // Of a dry run, where all of it was spent at the reference: for shares of energy that would be
  // saved, and of performance that would be lost.
  Saving would_be(const ShareEstimate& saved, const ShareEstimate& lost) const;

 private:
  Saving unsaved() const;

  Duration time_{};
  Spent unsaved_;
  std::map<int, Spent> by_x_;  // in steps of 0.01
};

}  // namespace derate
