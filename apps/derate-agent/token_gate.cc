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
  return known != known_.end() ? known->second.take(now) : unknown_.take(now);
}

// Only an answer that looked at the token says anything of it.
void TokenGate::heard(std::string_view authorization, int status) {
  const std::lock_guard lock(mutex_);
  if (status == 401)
    known_.erase(mark_of(authorization));
  else if (status < 500 && status != 429 && known_.size() < kMostKnown)
    known_.try_emplace(mark_of(authorization), kOfKnown);
}

}  // namespace derate::agent
