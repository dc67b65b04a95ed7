// Worlds of processes that share a GPU without MIG, in steps of 10 ms, with the truth of whose its
// energy is. They are simpler than TenantWorld's and say more of how time is shared: who works
// when, how the driver counts, and how each one's watts move.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "attrib/split.h"
#include "attrib/tick.h"

namespace derate {

// Of two numbers, one between them is drawn each time.
struct ShareProcess {
  double watts = 200;       // above base and context while it has the GPU, at the highest clock
  double demand = 1;        // of the GPU's time while it works, with the GPU to itself
  double on_s[2] = {0, 0};  // it works for so long, and pauses for so long; 0: it always works
  double off_s[2] = {0, 0};
  bool parked = false;       // a context and no kernel
  double begins_s = 0;       // its context
  double stops_s = 1e9;      // of its work; its context stays
  double ends_s = 1e9;       // its context
  double comes_again_s = 0;  // after it has ended, as another process; 0: it does not
  // Its watts: the sd of their logarithm and for how long they stay; a factor is drawn anew now and
  // then; they swing by a part of themselves in a period.
  double wander_sd = 0, wander_s = 90;
  double jump[2] = {1, 1}, jump_s[2] = {0, 0};
  double swing = 0, swing_s = 60;
};

struct ShareWorldSpec {
  std::string name;
  std::vector<ShareProcess> processes;
  double turn_s = 0;  // they have the GPU one after the other, each for so long
  double length_s = 1800;
  double sample_s = 0.2;  // of the driver
  int credited = 1;       // processes that one sample is credited to, at moments of their own
  // How far samples and turns move against each other from sample to sample, of a turn; 1: at
  // random.
  double drift = 1;
  bool part_time_sensor = true;  // 25 of each 100 ms (arXiv 2312.02741)
  double lag_s = 0;              // of the board's power
  // The clock, of the highest; another each `clock_s`.
  double clock[2] = {1, 1}, clock_s[2] = {5, 30};
  double work_exponent = 2.2, context_exponent = 2.2;
  bool clock_is_read = true;
  double base_w = 80, context_w = 47;
  double power_limit_w = 1e9;  // lowers the clock where the board's mean power of 0.1 s is above it
  double restart_s = 0;  // Derate is started anew then, and keeps its ProgramMemory; 0: it is not
};

struct ShareTruth {
  std::string key;
  double joules = 0;   // above base, in this tick
  bool rests = false;  // it did no work in the last ten seconds
};

// Goes on by ticks of one second.
class ShareWorld {
 public:
  ShareWorld(ShareWorldSpec spec, std::uint64_t seed);

  bool is_over() const { return now_s_ >= spec_.length_s; }
  double now_s() const { return now_s_; }
  AttribTick tick();
  const std::vector<ShareTruth>& truth() const { return truth_; }  // of the last tick
  BoardFacts facts() const;                                        // the chip and its highest clock

 private:
  struct State {
    bool here = false, on = false;
    int life = 0;
    double until_s = 0;                  // of being on, or off
    double left_s = 0, gap_until_s = 0;  // of a burst
    double wander = 0, factor = 1, factor_until_s = 0, gap_s = 0;
    double sampled_s = 0, credited_s = 0, joules = 0, worked_at_s = -1e9;
    double ends_s = 0, begins_s = 0;
  };
  double uniform(const double (&between)[2]);
  std::string key_of(std::size_t process) const;
  void live(std::size_t process);
  void move_watts(std::size_t process);
  bool wants(std::size_t process);
  void limit_clock();
  void step();
  void end_sample();

  ShareWorldSpec spec_;
  std::mt19937_64 random_;
  std::vector<State> states_;
  std::vector<ShareTruth> truth_;
  std::vector<double> late_;  // W, of the board, the newest last
  double now_s_ = 0, clock_ = 1, clock_until_s_ = 0, clock_sum_ = 0;
  double allowed_clock_ = 1;  // by the power limit
  long capped_steps_ = 0;     // of the tick, those in which that is below clock_
  double sensed_j_ = 0, sensed_s_ = 0, sample_phase_ = 0, sample_ends_s_ = 0;
  long steps_ = 0;
};

// Worlds of one kind each: docs/attribute-results.md lists them.
std::vector<ShareWorldSpec> share_worlds();
// Worlds of two to eight processes, everything of them drawn.
std::vector<ShareWorldSpec> drawn_share_worlds(std::uint64_t seed, int count);

}  // namespace derate
