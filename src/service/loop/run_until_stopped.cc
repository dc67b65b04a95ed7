#include "service/loop/run_until_stopped.h"

#include <systemd/sd-daemon.h>

#include <chrono>
#include <cstdint>

#include "base/service_notice.h"

namespace derate {

Result<void> run_until_stopped(EventLoop& loop, Clock& clock) {
  TRY(loop.add_signals(kStopSignals, EventLoop::Priority::round, [&](int) { loop.stop(); }));
  TRY(loop.add_signals(kIgnoredSignals, EventLoop::Priority::round, [](int) {}));
  ServiceNotices notices;
  // systemd waits for READY=1, and its queue may be full just now.
  constexpr Duration kTryAgain = std::chrono::milliseconds(500);
  EventLoop::Timer ready;
  ready = TRY(loop.add_timer(EventLoop::Priority::heartbeat, [&] {
    if (!notices.send_owed()) ready.set(clock.now() + kTryAgain);
  }));
  std::uint64_t watchdog_us = 0;
  EventLoop::Timer alive;
  if (::sd_watchdog_enabled(0, &watchdog_us) > 0) {
    alive = TRY(loop.add_timer(EventLoop::Priority::heartbeat, [&] {
      (void)notify_service("WATCHDOG=1");
      alive.set(clock.now() + std::chrono::microseconds(watchdog_us / 3));
    }));
    alive.set(clock.now());
  }
  notices.ready();
  ready.set(clock.now());
  TRY(loop.run());
  (void)notify_service("STOPPING=1");
  return {};
}

}  // namespace derate
