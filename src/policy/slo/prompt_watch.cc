#include "policy/slo/prompt_watch.h"

#include <cmath>

namespace derate {
namespace {

constexpr double kFollow = 0.3;  // of a reading, into the mean of calm power
// A step that takes longer than this many usual ones read a prompt.
constexpr double kLongStep = 2.5;
constexpr double kStepsAfter = 3;
constexpr double kSameClock = 0.03;

}  // namespace

void PromptWatch::expect(Instant now) {
  since_ = now;
  read_ = 0;
}

bool PromptWatch::look(const Estimate& estimate, Megahertz locked) {
  if (since_) return true;
  if (!estimate.power || estimate.sm_clock != locked) return false;
  // Power at another clock says nothing of the work.
  if (std::abs(locked / clock_ - 1) > kSameClock) calm_w_.reset();
  clock_ = locked;
  const double watts = estimate.power->value();
  if (calm_w_ && watts > *calm_w_ * (1 + jump_)) {
    expect(estimate.time);
    return true;
  }
  calm_w_ = calm_w_ ? *calm_w_ + kFollow * (watts - *calm_w_) : watts;
  return false;
}

void PromptWatch::look(const EngineDelta& delta, const ServingState& state,
                       std::optional<double> usual_s) {
  if (!since_ || state.time <= *since_) return;
  if (state.waiting.value_or(0) > 0) return;
  read_ += delta.prompt_tokens;
  const bool rests = state.running.value_or(0) == 0 && delta.prompt_tokens > 0;
  const double step_s = delta.steps > 0 ? seconds(delta.span) / delta.steps : 0;
  const bool decodes = (delta.prompt_tokens == 0 ? delta.steps > 0 : delta.steps >= kStepsAfter) &&
                       (!usual_s || step_s < kLongStep * *usual_s);
  if (!rests && !decodes) return;
  since_.reset();
  if (read_ == 0) calm_w_.reset();  // it was no prompt: decoding draws that much
}

}  // namespace derate
