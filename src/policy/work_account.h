// The account of a work that was promised throughput: what it has done beyond the promise. It
// belongs to the work and not to a policy: each domain that the work runs on (the GPU's clock
// today) spends from it what its own knob costs.
#pragma once

#include <cstddef>
#include <deque>
#include <map>

namespace derate {

// All in seconds of the work at its reference, at least.
class WorkAccount {
 public:
  static constexpr double kMostSaved = 1.5;

  // Another work. `saved_s`: what it has saved already; below 0: lost.
  void begin(double saved_s);
  // For the time of a domain's tick: the performance that its knob leaves at least, and what was
  // promised; 1 = at the reference. The first of several domains keeps the account's time, the
  // others say what to multiply its performance by.
  void count(std::size_t domain, double performance, double promised, double time_s);
  // What was counted before turns out to be more or less by so much. What is credited is kept
  // within the most that may be saved at once; what is corrected, at the next count.
  void credit(double s);
  void correct(double s) { saved_s_ += s; }
  // What was saved is not to be spent by what comes; what was lost is still made good.
  void forfeit();
  // A visit of one of some phases that take turns is over.
  void end_visit();

  double saved_s() const { return saved_s_; }
  // What was saved and not needed, over this visit and the two before.
  double spare_s() const;
  // The performance that the other domains' knobs leave.
  double others(std::size_t domain) const;

 private:
  double saved_s_ = 0;
  std::deque<double> least_;                   // of this visit and the two before
  std::map<std::size_t, double> performance_;  // of each domain, as it was counted last
};

}  // namespace derate
