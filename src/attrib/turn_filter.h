// Filter of the watts that each process draws while it has the GPU, learned from the board's power
// for one model of how the processes share it.
//
//   P = base + r^x context + r^e (1 - turning t) sum_k s_k w_k + noise
//
// s are shares of the tick's time, w watts of a process while it has the GPU, r the clock in parts
// of the highest, t = 1 - sum_k q_k^2 of their parts q of the busy time: how much they take turns.
// A straight line, for at each moment one of them draws its own. `turning` is what goes in taking
// turns; below 0, they run at the same time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attrib/power_kalman_filter.h"
#include "attrib/time_shares.h"

namespace derate {

struct BoardTick {
  double seconds = 0;             // its length
  double clock = 1;               // of the highest
  bool context = false;           // somebody holds one
  std::optional<double> board_w;  // the mean, W
  double busy = 0;                // of the tick's time
  double capped = 0;              // the part of it under the power limit
};

// The parts with a process at work less those without it.
std::vector<double> with_less_without(const std::vector<double>& parts, const WorkDoubt& doubt);

class TurnFilter {
 public:
  explicit TurnFilter(const WattPrior& prior);
  TurnFilter(TurnFilter&&) noexcept;
  TurnFilter& operator=(TurnFilter&&) noexcept;
  ~TurnFilter();

  struct Followed {
    std::optional<std::size_t> was;  // its place before; empty: it is new
    std::optional<Belief> expected;  // W of one that is new, as watts(); empty: as any other's
  };
  // The processes from now on.
  void follow(const std::vector<Followed>& processes, double seconds);
  // A null guess: nothing worked.
  void learn(const BoardTick& tick, const ShareGuess* guess, const std::vector<WorkDoubt>& doubts);

  // Of the tick that was learned last.
  struct Seen {
    // By process: its part of the busy time, 0..1, with the power as evidence, and the watts that a
    // part of 1 draws.
    std::vector<double> parts, slope;
    // By process: W in the tick; their variances, W^2; their covariances with the sum of all; and
    // the variance of that sum.
    std::vector<double> draws, draws2, draws_with_all;
    double all_draws2 = 0;
    double off = 0;  // W, of the power against what was foretold
    // The variances of that, W^2: of the watts, of the sensor, of the parts, and of who works.
    double watts2 = 0, noise2 = 0, parts2 = 0, doubts2 = 0;
    double known_parts2 = 0;  // of parts2, what would be left were the watts known
    double noise_w = 0;       // of the sensor, as adapted
    // Factors that the clock puts on the watts of work, and of a context.
    double core = 1, context_core = 1;
    double core_sd = 0;  // of `core`, of itself

    double all2() const { return watts2 + noise2 + parts2 + doubts2; }
  };
  const Seen& seen() const;

  double base() const;        // W
  double base_sd() const;     // W
  double context() const;     // W, at the highest clock
  double context_sd() const;  // W
  // Of a process while it has the GPU, at the highest clock: W, and the variance of that, W^2, now
  // and where nothing was seen but what two draw together.
  double watts(std::size_t process) const;
  double variance(std::size_t process) const;
  double prior_variance() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace derate
