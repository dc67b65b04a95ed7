#include "attrib/work_state.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

// Gamma priors of both rates: so many changes in so many seconds.
constexpr double kWakes = 0.5, kPauses = 1, kSeenS = 60;
constexpr double kRested = 0.5;  // a process less likely at work than that rests    // a sample of
                                 // a process less likely at work than that woke it
constexpr double kLeast = 1e-6;  // of the probability: no odds are beyond that
constexpr double kMostOdds = 0.3;  // by which one tick's power may speak for work
constexpr double kMostOddsAgainst = 6;

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
  if (works_ < kRested) ++wakes_;
  works_ = 1;
}

void WorkState::miss(double likelihood) {
  const double before = works_, odds = within(works_) * std::max(kLeast, likelihood);
  works_ = within(odds / (odds + 1 - within(works_)));
  if (before >= kRested && works_ < kRested) ++pauses_;
}

void WorkState::learn(double log_odds) {
  const double odds = std::exp(std::clamp(log_odds, -kMostOddsAgainst, kMostOdds));
  works_ = within(works_ * odds / (works_ * odds + 1 - works_));
}

}  // namespace derate
