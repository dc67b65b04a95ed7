#include "policy/published_serving/engine_looks.h"

#include <algorithm>

namespace derate {
namespace {

constexpr Duration kFresh = std::chrono::seconds(2);

}  // namespace

std::optional<EngineDelta> EngineLooks::look(const SharedServingState& state) {
  if (state == nullptr || (!looks_.empty() && state == looks_.back())) return std::nullopt;
  auto delta = watch_.look(state);
  if (!delta) looks_.clear();
  looks_.push_back(state);
  while (looks_.size() > 2 && looks_[1]->time <= state->time - kept_) looks_.pop_front();
  return delta;
}

bool EngineLooks::fresh(Instant now) const {
  return !looks_.empty() && now - looks_.back()->time <= kFresh;
}

std::optional<double> EngineLooks::quantile(double share) const {
  if (looks_.size() < 2 || !looks_.back()->between_tokens) return std::nullopt;
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
