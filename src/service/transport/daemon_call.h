// Asking the daemon over its client socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

// The first of `sockets` over which `call` reaches a daemon. That another user listens on one
// before is printed. Errors: those of the call; not_found when no daemon runs, no_permission when
// only another user listens.
Result<std::string> first_answering(
    const std::vector<std::string>& sockets,
    const std::function<Result<void>(const std::string& socket)>& call);

struct DaemonLine {
  std::string socket;  // where one listens
};

// The first of client_sockets() that answers and is root's or one's own. Errors: those of
// first_answering().
Result<DaemonLine> find_daemon();
// The answer's fields. Errors: those that the daemon tells, by their code; not_found when it is
// gone, io, gpu_stuck.
Result<nlohmann::ordered_json> ask(const DaemonLine& line, const std::string& request);

// What the daemon's answer says, whichever way it came. Errors: those that it tells, by their code;
// io where it is not understood.
Result<nlohmann::ordered_json> daemon_answer(const std::string& text);

// One request at a time, which is begun and then looked at: nothing here waits, whatever has become
// of the daemon.
class DaemonCall {
 public:
  // Whether a connection serves one request, or all until it breaks: what was opened on it then
  // ends.
  enum class Connection : std::uint8_t { of_each_request, kept };

  // `clock` outlives it.
  DaemonCall(DaemonLine line, Clock& clock, Connection connection = Connection::of_each_request)
      : line_(std::move(line)), clock_(clock), connection_(connection) {}

  // In place of one that is under way, whose answer is lost.
  void begin(const std::string& request);
  bool under_way() const { return until_.has_value(); }
  // To poll for what is to be read or written; -1 where there is nothing to wait for.
  int fd() const { return socket_.get(); }
  short events() const;
  // Empty: not yet, or nothing was begun. Errors: as ask().
  std::optional<Result<nlohmann::ordered_json>> look();
  // The last answer came from the daemon; else it was not reached.
  bool was_answered() const { return answered_; }

 private:
  std::optional<Result<std::string>> exchange();
  Result<void> connect();

  DaemonLine line_;
  Clock& clock_;
  Connection connection_;
  UniqueFd socket_;
  std::string out_, in_;
  std::optional<Instant> until_;
  bool answered_ = false;
};

}  // namespace derate
