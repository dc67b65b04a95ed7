// The loop of a program that systemd or a container runs, until a signal ends it.
#pragma once

#include <array>
#include <csignal>

#include "base/clock.h"
#include "base/result.h"
#include "service/loop/event_loop.h"

namespace derate {

// Signals that end the program, and signals that it ignores: a terminal that closes, or a reload of
// all units, is no reason to end. Block them before the first thread starts.
inline constexpr std::array kStopSignals{SIGTERM, SIGINT};
inline constexpr std::array kIgnoredSignals{SIGHUP};

// Notifies the service manager that the program is ready, alive (where a watchdog is set) and
// stopping. Errors: those of the loop.
Result<void> run_until_stopped(EventLoop& loop, Clock& clock);

}  // namespace derate
