// Unary gRPC call, one message with one answer, over a local socket, by libnghttp2 and without
// gRPC. gRPC would bring 57 libraries of 24 MB, 15 MB of memory and 6 threads into a daemon that
// forks, and thread sanitizers report its uninstrumented insides (Debian 12, gRPC 1.51, measured).
// HTTP/2 is libnghttp2's (190 kB).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace derate {

struct UnaryCall {
  std::string socket;  // path
  std::string method;  // "/package.Service/Method"
  std::string request;
  Duration timeout = std::chrono::seconds(5);  // of all of it
  std::size_t most_bytes = 16 << 20;           // of the answer
  int stop_fd = -1;                            // readable: give up
};

// Whether this build can call: libnghttp2 was there.
bool can_call();

// The message that was answered. Errors: not_found when there is no such socket, no_permission, io
// when nobody listens (yet) or the connection ends, query_failed when it takes too long or the
// status is not OK, bad_data for what is no gRPC or too long, interrupted by stop_fd, not_supported
// where the server does not have the method, and without libnghttp2.
Result<std::string> call(const UnaryCall& what, const Clock& clock);

// The same with the message in pieces as they come, so that no large answer has to be held. A call
// that fails may have given pieces. Errors: those of `take` as well, which end the call.
using TakePiece = std::function<Result<void>(std::string_view piece)>;
Result<void> call(const UnaryCall& what, const TakePiece& take, const Clock& clock);

}  // namespace derate
