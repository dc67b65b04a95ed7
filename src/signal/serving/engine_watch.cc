#include "signal/serving/engine_watch.h"

#include <algorithm>
#include <utility>

namespace derate {
namespace {

double grown(const std::optional<double>& now, const std::optional<double>& before) {
  return now && before ? *now - *before : 0;
}

// Of cumulative counts those between each edge and the one before.
std::vector<double> apart(const LatencyHistogram& now, const LatencyHistogram& before) {
  std::vector<double> out(now.counts.size());
  double below = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double here = now.counts[i] - before.counts[i];
    out[i] = std::max(0.0, here - below);
    below = here;
  }
  return out;
}

constexpr double kRounding = 0.5;  // less than a count: of sums that were added in another order

// It fell, or it is no count.
bool fell(const std::optional<double>& now, const std::optional<double>& before) {
  return now && before && !(*now >= *before && *now <= kMostCounted);
}

bool changed(const std::optional<LatencyHistogram>& now,
             const std::optional<LatencyHistogram>& before) {
  if (!now || !before) return now.has_value() != before.has_value();
  if (now->edges_s != before->edges_s || fell(now->sum_s, before->sum_s)) return true;
  double grown = 0;  // each bucket by as much as those below it, or more
  for (std::size_t i = 0; i < now->counts.size(); ++i) {
    const double here = now->counts[i] - before->counts[i];
    if (!(here > grown - kRounding && here <= kMostCounted)) return true;
    grown = here;
  }
  return false;
}

}  // namespace

bool began_anew(const ServingState& now, const ServingState& before) {
  return now.run != before.run || fell(now.prompt_tokens, before.prompt_tokens) ||
         fell(now.generated_tokens, before.generated_tokens) || fell(now.steps, before.steps) ||
         changed(now.between_tokens, before.between_tokens) ||
         changed(now.first_token, before.first_token);
}

std::optional<EngineDelta> EngineWatch::look(const SharedServingState& state) {
  if (state == nullptr || state == last_) return std::nullopt;
  const SharedServingState before = std::exchange(last_, state);
  if (before == nullptr || began_anew(*state, *before)) return std::nullopt;
  EngineDelta out;
  out.span = state->time - before->time;
  out.prompt_tokens = grown(state->prompt_tokens, before->prompt_tokens);
  out.generated_tokens = grown(state->generated_tokens, before->generated_tokens);
  out.steps = state->steps ? grown(state->steps, before->steps)
                           : out.generated_tokens / std::max(1.0, state->running.value_or(1));
  if (state->first_token) {
    out.first_tokens = state->first_token->counts.back() - before->first_token->counts.back();
    out.first_token_s = state->first_token->sum_s - before->first_token->sum_s;
  }
  if (state->between_tokens) {
    out.edges_s = state->between_tokens->edges_s;
    out.between_tokens = apart(*state->between_tokens, *before->between_tokens);
    out.intervals = state->between_tokens->counts.back() - before->between_tokens->counts.back();
    out.intervals_s = state->between_tokens->sum_s - before->between_tokens->sum_s;
  }
  return out;
}

}  // namespace derate
