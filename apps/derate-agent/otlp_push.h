// Pushes derated's metrics to a receiver of OTLP/HTTP at an interval. Metrics that could not be
// sent are not kept: counters are sums since derated's start, so the next push has them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "otlp_options.h"

namespace derate::agent {

struct OtlpPush {
  std::vector<std::string> sockets;  // of derated: the first on which somebody listens
  OtlpOptions to;
  std::string version;  // of the program
  Log log = {};
};

// Reads the metrics and sends them, once. Errors: those of http_call(), of either side;
// bad_data for metrics that are none; what the receiver's status says, and `retry_after`, where it
// says when to come again.
Result<OtlpRefusal> push_once(const OtlpPush& push, const Clock& clock,
                              std::optional<Duration>& retry_after);

// For a thread of its own; never returns. Each failure that begins is logged, and its end.
[[noreturn]] void push_forever(const OtlpPush& push, Clock& clock);

// When to try again after `failures` in a row, of which the receiver said `retry_after`: never
// later than as often as all goes well, unless it was told to.
Duration wait_after(int failures, std::optional<Duration> retry_after, Duration interval);

}  // namespace derate::agent
