#include "policy/slo/clock_charge.h"

#include <algorithm>

namespace derate {
namespace {

constexpr Duration kKept = std::chrono::seconds(30);

}  // namespace

void ClockHistory::add(Instant time, double share) {
  if (points_.empty() || points_.back().share != share) points_.push_back({time, share});
  while (points_.size() > 1 && points_[1].time < time - kKept) points_.pop_front();
}

// Before the first point the share was the first's.
double ClockHistory::mean(Instant from, Instant to) const {
  if (points_.empty()) return 1;
  double sum = 0;
  Instant end = to;
  for (auto point = points_.rbegin(); point != points_.rend(); ++point) {
    const Instant begin = std::max(from, point->time);
    if (begin < end) {
      sum += point->share * seconds(end - begin);
      end = begin;
    }
    if (end <= from) break;
  }
  if (end > from) sum += points_.front().share * seconds(end - from);
  return from < to ? sum / seconds(to - from) : points_.back().share;
}

double ClockHistory::least_mean(Instant from, Instant to, double length_s) const {
  constexpr int kEnds = 4;
  double least = 1;
  for (int i = 0; i <= kEnds; ++i) {
    const Instant end = from + (to - from) * i / kEnds;
    least = std::min(least, mean(end - from_seconds(length_s), end));
  }
  return least;
}

LateTokens late_tokens(const EngineDelta& delta, double edge_s, const ClockHistory& clocks,
                       Instant from, Instant to) {
  LateTokens out;
  for (std::size_t i = 0; i < delta.between_tokens.size(); ++i) {
    const double here = delta.between_tokens[i];
    out.tokens += here;
    const double low = i == 0 ? 0 : delta.edges_s[i - 1];
    if (here <= 0 || low < edge_s) continue;
    out.late += here;
    const double share = clocks.least_mean(from, to, low);
    const double longest = edge_s / share;  // of those that the clock can have made late
    if (longest <= low) continue;
    const double high = i < delta.edges_s.size() ? delta.edges_s[i] : longest;
    out.caused_most += here;
    out.caused += here * (high > longest ? (longest - low) / (high - low) : 1);
  }
  return out;
}

}  // namespace derate
