#include "attrib/samples/work_state.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Gamma priors of both rates: so many changes in so many seconds.
constexpr double kWakes = 0.5, kPauses = 1, kSeenS = 60;
// A process less likely at work than that rests.
constexpr double kRested = 0.5;
constexpr double kLeast = 1e-6;  // of the probability: no odds are beyond that
// By which one tick's power may speak for work, and against it, in nats.
constexpr double kMostOdds = 0.3, kMostOddsAgainst = 6;

double within(double works) { return std::clamp(works, kLeast, 1 - kLeast); }

}  // namespace

void WorkState::go_on(double seconds) {
  const double wakes = (wakes_ + kWakes) / (rested_s_ + kSeenS);
  const double pauses = (pauses_ + kPauses) / (worked_s_ + kSeenS);
  worked_s_ += works_ * seconds;
  rested_s_ += (1 - works_) * seconds;
  works_ = works_ * std::exp(-seconds * pauses) + (1 - works_) * (1 - std::exp(-seconds * wakes));
}

void WorkState::meet() {
  if (rests_) ++wakes_;
  rests_ = false;
  works_ = 1;
}

void WorkState::miss(double likelihood) {
  const double odds = within(works_) * std::max(kLeast, likelihood);
  works_ = within(odds / (odds + 1 - within(works_)));
  count_pause();
}

void WorkState::learn(double log_odds) {
  const double odds = std::exp(std::clamp(log_odds, -kMostOddsAgainst, kMostOdds));
  works_ = within(works_ * odds / (works_ * odds + 1 - works_));
  count_pause();
}

void WorkState::count_pause() {
  if (rests_ || works_ >= kRested) return;
  rests_ = true;
  ++pauses_;
}

}  // namespace derate
