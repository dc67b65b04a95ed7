#include "tune/trial_rate.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {
namespace {

constexpr Duration kMinute = std::chrono::minutes(1);
constexpr double kEachSecond = TrialRate::kMostAMinute / 60.0;

}  // namespace

// Whoever has begun none for a minute may begin all of them at once again.
Result<void> TrialRate::take(std::uint32_t uid, Instant now) {
  if (uid == 0) return {};
  std::erase_if(users_, [&](const auto& user) { return now - user.second.at >= kMinute; });
  User& user = users_.try_emplace(uid, User{.at = now}).first->second;
  const double come = std::max(0.0, seconds(now - user.at)) * kEachSecond;
  user.left = std::min<double>(kMostAMinute, user.left + come);
  user.at = now;
  if (user.left < 1)
    return Error{
        Errc::busy,
        fmt::format("user {} began {} trials in a minute, no more are allowed: the next in "
                    "{:.1f} s",
                    uid, kMostAMinute, (1 - user.left) / kEachSecond)};
  user.left -= 1;
  return {};
}

}  // namespace derate
