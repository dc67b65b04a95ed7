// The daemon's ear: a unix socket that takes a line of JSON and answers with one. Only the daemon's
// own user and root are heard; the kernel says who calls.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};

class ControlServer {
 public:
  static constexpr std::size_t kLongestRequest = 64 << 10;
  static constexpr std::size_t kMostClients = 32;
  static constexpr Duration kIdleTime = std::chrono::seconds(5);

  // A socket that nobody listens on any more is replaced. Errors: busy when somebody does,
  // no_permission, io.
  static Result<std::unique_ptr<ControlServer>> create(const std::string& path, Clock& clock);
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ~ControlServer();  // removes the socket

  using Handler = std::function<std::string(std::string_view request, const Peer& peer)>;
  // Answers what has come in, and does not wait for anything.
  void serve(const Handler& handler);

 private:
  struct Client {
    UniqueFd socket;
    Peer peer;
    std::string in, out;
    Instant heard{};
  };
  ControlServer(std::string path, UniqueFd socket, Clock& clock)
      : path_(std::move(path)), socket_(std::move(socket)), clock_(clock) {}
  void take_callers();
  bool serve_one(Client& client, const Handler& handler);  // false: done with it

  std::string path_;
  UniqueFd socket_;
  Clock& clock_;
  std::vector<Client> clients_;
};

// Sends a line to the daemon at `path` and waits for its answer.
// Errors: not_found when no daemon listens there, no_permission, io, gpu_stuck when no answer
// comes.
Result<std::string> control_call(const std::string& path, const std::string& request,
                                 Duration patience);

}  // namespace derate
