// The energy that an engine used to read prompts, to decode, and while it waited for requests. It
// is an estimate: the counter has the sum of all. Stretches of kStretchS differ in prompts, steps
// and rests, and a regression finds what each of them takes. With x = log(highest clock / clock),
// the joules of a stretch are sums over its looks:
//
//     decoding:  steps (a + b x + c x^2 + d (share of the KV cache)) + tokens (e + f x)
//     prompts:   tokens (g + h x) + requests i
//     waiting:   seconds (j + k x)
//
// The parts are scaled so that they add up to the counter's joules.
#pragma once

#include <deque>
#include <optional>

#include "core/serving_state.h"
#include "model/linear_belief.h"
#include "signal/serving/engine_watch.h"

namespace derate {

// Sums over all stretches so far, which end kSettles before the newest look or earlier.
struct PhaseEnergies {
  double prompts_j = 0, decoding_j = 0, waiting_j = 0;
  double prompt_tokens = 0;
  double decoded_tokens = 0;  // all but the first of each request: the step that reads makes it
  double unsure_j = 0;        // standard deviation of prompts_j
};

// The sums of the time between two dates.
PhaseEnergies operator-(PhaseEnergies later, const PhaseEnergies& before);

// One look at an engine, and the energy of its GPUs since the look before.
struct PhaseLook {
  Instant from{}, to{};
  double joules = 0;
  double x = 0;                            // log(highest clock / clock) of the slowest GPU, mean
  double running_before = 0, running = 0;  // requests at both ends
  double waiting = 0;
  double kv_share = 0;
};

// Metrics that are missing count as 0. `clock_share`: of the highest clock, the mean.
PhaseLook phase_look(const ServingState& before, const ServingState& now, double joules,
                     double clock_share);

class PhaseEnergy {
 public:
  // First tokens that take longer are sorted as if they had taken that long.
  static constexpr Duration kSettles = std::chrono::seconds(10);
  static constexpr double kStretchS = 10;

  PhaseEnergy();
  void look(const EngineDelta& delta, const PhaseLook& look);
  const PhaseEnergies& sums() const { return sums_; }

 private:
  struct Pending {
    PhaseLook look;
    double steps = 0, tokens = 0;
    double prompt_tokens = 0, requests = 0;  // by when they were read, about
    double waiting_s = 0;
  };
  struct Stretch {
    LinearBelief::Row prompts{}, decoding{}, waiting{};
    double joules = 0, seconds = 0, prompt_tokens = 0, decoded_tokens = 0;
  };

  void spread_prompts(const EngineDelta& delta, const PhaseLook& look);
  void end_rest(Instant arrival);
  void add(const Pending& of);
  void forget();
  void close_stretch();

  std::deque<Pending> pending_;
  Stretch stretch_;
  PhaseEnergies sums_;
  LinearBelief belief_;
  // Of stretches from what was expected: mean square, 1 where they are off as assumed.
  double spread_ = 1;
};

}  // namespace derate
