#include "govern/fleet/envelope_bounds.h"

#include <algorithm>

namespace derate {

void EnvelopeBounds::put(const std::string& uuid, EnvelopeBound bound) {
  auto& of = bounds_[uuid];
  const std::string source = bound.source;
  of.insert_or_assign(source, std::move(bound));
}

void EnvelopeBounds::withdraw(const std::string& uuid, const std::string& source) {
  if (const auto at = bounds_.find(uuid); at != bounds_.end()) at->second.erase(source);
}

std::vector<EnvelopeBound> EnvelopeBounds::of(const std::string& uuid, Instant now) const {
  std::vector<EnvelopeBound> out;
  const auto gpu = bounds_.find(uuid);
  if (gpu == bounds_.end()) return out;
  for (const auto& [source, bound] : gpu->second)
    if (!bound.until || now < *bound.until) out.push_back(bound);
  std::stable_sort(out.begin(), out.end(), [](const EnvelopeBound& a, const EnvelopeBound& b) {
    return a.most && (!b.most || *a.most < *b.most);
  });
  return out;
}

}  // namespace derate
