#include "govern/lateness.h"

#include <algorithm>

namespace derate {

void Lateness::add(Duration late) {
  if (kept_.size() < kKept)
    kept_.push_back(late);
  else
    kept_[rounds_ % kKept] = late;
  ++rounds_;
}

std::optional<Duration> Lateness::quantile(double share) const {
  if (kept_.empty()) return std::nullopt;
  std::vector<Duration> sorted = kept_;
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(sorted.size() - 1));
  std::nth_element(sorted.begin(), sorted.begin() + at, sorted.end());
  return sorted[static_cast<std::size_t>(at)];
}

}  // namespace derate
