#include "base/clock.h"

#include <cerrno>
#include <ctime>

namespace derate {
namespace {

Duration read(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec);
}

}  // namespace

Instant SystemClock::now() const { return Instant(read(CLOCK_MONOTONIC)); }
WallTime SystemClock::wall_now() const { return WallTime(read(CLOCK_REALTIME)); }

Duration SystemClock::suspended() const { return read(CLOCK_BOOTTIME) - read(CLOCK_MONOTONIC); }

bool SystemClock::sleep_until(Instant deadline) {
  const Duration since = deadline.time_since_epoch();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since);
  const timespec until{whole.count(), (since - whole).count()};
  return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != EINTR;
}

Duration thread_cpu_time() { return read(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace derate
