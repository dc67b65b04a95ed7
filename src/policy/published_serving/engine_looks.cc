#include "policy/published_serving/engine_looks.h"

#include <algorithm>

namespace derate {
namespace {

constexpr Duration kFresh = std::chrono::seconds(2);

double growth(const std::optional<double>& later, const std::optional<double>& before) {
  return later && before ? *later - *before : 0;
}

bool same_run(const ServingState& later, const ServingState& before) {
  if (later.run != before.run || !later.between_tokens || !before.between_tokens) return false;
  return later.between_tokens->edges_s == before.between_tokens->edges_s &&
         later.between_tokens->counts.back() >= before.between_tokens->counts.back();
}

}  // namespace

std::optional<EngineChange> EngineLooks::look(const SharedServingState& state) {
  if (state == nullptr || (!looks_.empty() && state == looks_.back())) return std::nullopt;
  if (!looks_.empty() && !same_run(*state, *looks_.back())) looks_.clear();
  looks_.push_back(state);
  while (looks_.size() > 2 && looks_[1]->time <= state->time - kept_) looks_.pop_front();
  if (looks_.size() < 2) return std::nullopt;
  const ServingState& before = **(looks_.end() - 2);
  return EngineChange{growth(state->prompt_tokens, before.prompt_tokens),
                      growth(state->generated_tokens, before.generated_tokens),
                      growth(state->steps, before.steps),
                      state->between_tokens->counts.back() - before.between_tokens->counts.back(),
                      state->between_tokens->sum_s - before.between_tokens->sum_s};
}

bool EngineLooks::fresh(Instant now) const {
  return !looks_.empty() && now - looks_.back()->time <= kFresh;
}

std::optional<double> EngineLooks::quantile(double share) const {
  if (looks_.size() < 2) return std::nullopt;
  const LatencyHistogram& later = *looks_.back()->between_tokens;
  const LatencyHistogram& before = *looks_.front()->between_tokens;
  const auto count = [&](std::size_t i) { return later.counts[i] - before.counts[i]; };
  const double wanted = share * count(later.counts.size() - 1);
  if (wanted <= 0) return std::nullopt;
  double below = 0, low = 0;
  for (std::size_t i = 0; i < later.edges_s.size(); ++i) {
    const double high = later.edges_s[i];
    if (count(i) >= wanted) return low + (high - low) * (wanted - below) / (count(i) - below);
    below = count(i);
    low = high;
  }
  return low;
}

}  // namespace derate
