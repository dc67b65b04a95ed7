// The daemon's ears: unix sockets that take a line of JSON and answer with one. The kernel says who
// calls.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

// Who may connect.
enum class Audience : std::uint8_t {
  owner_and_root,  // a command each: who says nothing for kIdleTime is sent away
  everyone,        // of this machine, for as long as they like; no user has more than his share
};

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  std::uint64_t connection = 0;  // from 1 on; no two have the same
};

class ControlServer {
 public:
  static constexpr std::size_t kLongestRequest = 64 << 10;
  static constexpr std::size_t kMostClients = 32;
  static constexpr Duration kIdleTime = std::chrono::seconds(5);
  // Of the audience `everyone`.
  static constexpr std::size_t kMostOfEveryone = 256;
  static constexpr std::size_t kMostOfOneUser = 64;
  // Requests of a connection in one serve(): more wait for the next.
  static constexpr int kMostARound = 16;

  // A socket that nobody listens on any more is replaced. Errors: busy when somebody does,
  // no_permission, io.
  static Result<std::unique_ptr<ControlServer>> create(
      const std::string& path, Clock& clock, Audience audience = Audience::owner_and_root);
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ~ControlServer();  // removes the socket

  // Empty: answer() comes later, and the connection's next request is not taken before.
  using Handler =
      std::function<std::optional<std::string>(std::string_view request, const Peer& peer)>;
  // The connection has ended, whoever ended it. Not called when the server goes.
  using Closed = std::function<void(const Peer& peer)>;
  // Answers what has come in, and does not wait for anything. A caller that does not read its
  // answers is not heard until it does.
  void serve(
      const Handler& handler, const Closed& closed = [](const Peer&) {});
  // The answer that was owed; nothing when the connection has ended.
  void answer(std::uint64_t connection, const std::string& text);

  // Can be read from (poll) when there is something to serve.
  int fd() const { return events_.get(); }
  const std::string& path() const { return path_; }

 private:
  struct Client {
    UniqueFd socket;
    Peer peer;
    std::string in, out;
    Instant heard{};
    bool ready = true;    // there may be something to read
    bool waits = false;   // for answer()
    bool ended = false;   // will say no more
    bool broken = false;  // nothing can be said to it any more
  };
  ControlServer(std::string path, UniqueFd socket, UniqueFd events, Clock& clock,
                Audience audience);
  std::size_t most_clients() const;
  void take_callers();
  bool admit(const UniqueFd& socket, const ucred& who) const;
  void note_ready();
  bool wants_to_hear(const Client& client) const;
  bool has_request(const Client& client) const;
  void read_from(Client& client);
  void write_to(Client& client);
  bool serve_one(Client& client, const Handler& handler);  // false: done with it
  void watch(const Client& client, int operation) const;

  std::string path_;
  UniqueFd socket_, events_;
  Clock& clock_;
  Audience audience_;
  std::uint64_t next_connection_ = 1;
  std::vector<Client> clients_;
};

// Sends a line to the daemon at `path` and waits for its answer.
// Errors: not_found when no daemon listens there, no_permission, io, gpu_stuck when no answer
// comes.
Result<std::string> control_call(const std::string& path, const std::string& request,
                                 Duration patience);

}  // namespace derate
