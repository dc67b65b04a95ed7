#include "token_gate.h"

#include <algorithm>
#include <functional>

namespace derate::agent {
namespace {

std::size_t mark_of(std::string_view authorization) {
  return std::hash<std::string_view>{}(authorization);
}

}  // namespace

bool Allowance::take(Instant now) {
  if (last_ != Instant::min())
    left_ = std::min(a_second_, left_ + a_second_ * std::max(0.0, seconds(now - last_)));
  last_ = now;
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

bool TokenGate::may_ask(std::string_view authorization, Instant now) {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(mark_of(authorization));
  if (known == known_.end()) return unknown_.take(now);
  known->second.used = ++uses_;
  return known->second.allowance.take(now);
}

void TokenGate::make_place() {
  if (known_.size() < kMostKnown) return;
  known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  }));
}

// A stranger chooses what else derated answers: a head too long, say, is refused unread.
void TokenGate::heard(std::string_view authorization, int status) {
  const std::lock_guard lock(mutex_);
  const std::size_t mark = mark_of(authorization);
  if (status == 401) known_.erase(mark);
  const bool admitted = status >= 200 && status < 300;
  if (!admitted || known_.contains(mark)) return;
  make_place();
  known_[mark].used = ++uses_;
}

}  // namespace derate::agent
