// Server of unary gRPC calls on a local socket that gives everyone the same answer, by libnghttp2
// and without gRPC (unary_call.h has the reasons). Its callers are not trusted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

struct UnaryServerOptions {
  std::vector<std::string> methods;  // "/package.Service/Method"; others get status 12
  // If there are as many, a new one takes the place of one that has no call, or waits.
  std::size_t most_connections = 8;
  std::size_t most_request_bytes = 64 << 10;  // of a call; they are not looked at
  // A connection on which no call is completed for this long is closed.
  Duration idle_time = std::chrono::seconds(60);
};

class UnaryServer {
 public:
  // Serves on a thread of its own until it is destroyed. `listening`: a stream socket that does not
  // block and listens. `clock` must outlive the server. Errors: io, not_supported without
  // libnghttp2.
  static Result<std::unique_ptr<UnaryServer>> create(UniqueFd listening, UnaryServerOptions options,
                                                     const Clock& clock);
  ~UnaryServer();
  UnaryServer(const UnaryServer&) = delete;
  UnaryServer& operator=(const UnaryServer&) = delete;

  // From any thread. The message that each call from now on gets; calls that are being answered get
  // the one before. All calls share it: a caller that does not read costs no copy.
  void set_answer(const std::string& message);
  // Calls get status 9 (FAILED_PRECONDITION), as they do before the first answer.
  void clear_answer();

 private:
  struct State;
  explicit UnaryServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace derate
