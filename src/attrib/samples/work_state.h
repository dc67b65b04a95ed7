// State of a process: it works, or holds its context still. Each process moves between the two at
// rates of its own.
#pragma once

namespace derate {

class WorkState {
 public:
  // The probability that it works, 0..1.
  double works() const { return works_; }

  // Time passes, and nothing is seen.
  void go_on(double seconds);
  // It had a sample: it works.
  void meet();
  // It had none of a tick's samples: how likely that is if it works, 0..1.
  void miss(double likelihood);
  // How much more likely the tick's power is if it works, a logarithm. A change of watts looks like
  // work that began: for work, a tick's power counts for little.
  void learn(double log_odds);

 private:
  void count_pause();

  double works_ = 0.5;
  bool rests_ = false;             // it was seen to work no more
  double wakes_ = 0, pauses_ = 0;  // that were seen
  double rested_s_ = 0, worked_s_ = 0;
};

}  // namespace derate
