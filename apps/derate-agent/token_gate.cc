#include "token_gate.h"

#include <algorithm>
#include <functional>

#include "base/text.h"

namespace derate::agent {
namespace {

// Hashes the secret alone: the scheme can have any case, and several blanks after it.
std::size_t mark_of(std::string_view authorization) {
  const std::size_t scheme = std::min(authorization.find(' '), authorization.size());
  return std::hash<std::string_view>{}(trim(authorization.substr(scheme)));
}

}  // namespace

double Allowance::left(Instant now) const {
  if (last_ == Instant::min()) return left_;
  return std::min(a_second_, left_ + a_second_ * std::max(0.0, seconds(now - last_)));
}

bool Allowance::take(Instant now) {
  left_ = left(now);
  last_ = now;
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

Allowance& TokenGate::unknown_of(uid_t user, Instant now) {
  if (unknown_.size() >= kMostUsers && !unknown_.contains(user))
    std::erase_if(unknown_, [&](const auto& each) { return each.second.is_full(now); });
  const bool has_room = unknown_.size() < kMostUsers || unknown_.contains(user);
  return has_room ? unknown_.try_emplace(user, kOfUnknown).first->second : unknown_of_others_;
}

bool TokenGate::may_ask(std::string_view authorization, uid_t user, Instant now) {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(mark_of(authorization));
  if (known == known_.end()) return unknown_of(user, now).take(now);
  known->second.used = ++uses_;
  return known->second.allowance.take(now);
}

void TokenGate::make_place() {
  if (known_.size() < kMostKnown) return;
  known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  }));
}

// Any other status proves nothing: derated also refuses requests, such as a head that is too long,
// before it checks the token.
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
