// Waiting for what comes to several sockets at once.
#pragma once

#include <functional>
#include <span>

#include "base/clock.h"

namespace derate {

// A file that can be polled, and what takes in what has come to it, without waiting.
struct PollSource {
  int fd = -1;
  std::function<void()> serve;
  bool ends_wait = false;  // what comes to it may change what the wait is for
};

// How often each wait is ended before its time: a sender who floods a socket has had its
// share then.
inline constexpr int kMostWakes = 256;

// Takes in what comes until `deadline`; false when a signal or a source ended the wait early. A
// signal that comes just before the wait does not end it: it wants a source of its own.
bool listen_until(std::span<const PollSource> sources, Clock& clock, Instant deadline);

}  // namespace derate
