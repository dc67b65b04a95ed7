#include "policy/assure/script.h"

namespace derate {
namespace {

constexpr Duration kGap = std::chrono::milliseconds(200);
constexpr Duration kNewJobAfter = std::chrono::seconds(2);
constexpr Duration kLongestTick = std::chrono::seconds(2);

}  // namespace

Script::Work Script::work_at(const Estimate& estimate) {
  unread_since.reset();
  if (*estimate.gpu_utilisation <= Fraction(0) && !estimate.launching) {
    if (!idle_since) idle_since = estimate.time;
    const Duration idle = estimate.time - *idle_since;
    if (idle > kNewJobAfter) anew = false;
    return idle > kNewJobAfter ? Work::has_ended : idle >= kGap ? Work::rests : Work::pauses;
  }
  const bool ended = idle_since && estimate.time - *idle_since > kNewJobAfter;
  idle_since.reset();
  const std::uint64_t counts = estimate.work.progress ? estimate.work.progress->process : 0;
  const bool another = counts != 0 && process != 0 && counts != process;
  if (counts != 0) process = counts;
  return !last || anew || ended || another ? Work::begins : Work::goes_on;
}

Duration Script::unread_for(Instant now) {
  if (!unread_since) unread_since = last.value_or(now);
  return now - *unread_since;
}

std::optional<Duration> Script::time_of_tick(Instant now) const {
  const Duration time = last ? now - *last : Duration{};
  return time > kLongestTick ? std::nullopt : std::optional(time);
}

bool Script::request(Megahertz clock, bool probing) {
  const bool another = clock != asked.clock;
  if (another) asked.at = last.value_or(Instant{});
  asked.clock = clock;
  asked.probing = probing;
  return another;
}

}  // namespace derate
