// The client's end: the state of the simulated GPUs, mapped read-only, and a connection to their
// server for what changes something. Used by the NVML library and by the command.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "fakenvml/protocol.h"
#include "fakenvml/shared_state.h"

namespace derate::fakenvml {

// $DERATE_SIM, else `sim` in the run directory, by the rule of src/config/paths.h.
std::string default_directory();
std::string state_path(const std::string& directory);
std::string socket_path(const std::string& directory);

class SimClient {
 public:
  // Errors: driver_not_loaded when no server answers there or it is of another version.
  static Result<std::unique_ptr<SimClient>> connect(const std::string& directory);
  SimClient(const SimClient&) = delete;
  SimClient& operator=(const SimClient&) = delete;
  ~SimClient();

  const State& state() const { return *state_; }

  // Empty when the server is gone. From any thread.
  std::optional<Reply> ask(const Request& request);

  // Whether the server still runs: a look at memory, and at the socket when the physics have not
  // moved for a while.
  bool alive();

 private:
  SimClient(std::string directory, const State* state, UniqueFd socket);
  Result<void> reconnect_after_fork();

  const std::string directory_;
  const State* const state_;
  std::mutex mutex_;  // one request at a time
  UniqueFd socket_;
  std::int32_t owner_;  // the process that connected
  SystemClock clock_;
  std::atomic<std::uint64_t> seen_steps_{~0ull};
  std::atomic<std::int64_t> seen_at_ns_{0};
  std::atomic<bool> gone_{false};
};

}  // namespace derate::fakenvml
