// A datagram unix socket to which every application of this machine may send heartbeats. The kernel
// gives the sender and the time; what to believe is the caller's
// (govern/heartbeat_registry.h).
#pragma once

#include <sys/types.h>

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/transport/caller_shares.h"
#include "service/transport/datagram_socket.h"

namespace derate {

class BeatServer {
 public:
  // What is taken in between two rounds of the loop; the rest waits in the kernel, which has room
  // for some (net.unix.max_dgram_qlen) and then refuses.
  static constexpr int kMostARound = 256;

  struct Sender {
    pid_t pid = 0;
    uid_t uid = 0;
    Instant time{};  // when it was sent
  };
  // `text` is at most kLongestBeat + 1 bytes; what was longer has been cut there.
  using Handler = std::function<void(std::string_view text, const Sender& sender)>;

  // A socket that nobody listens on any more is replaced.
  // Errors: busy when somebody does, invalid_argument for too long a name, no_permission, io.
  static Result<std::unique_ptr<BeatServer>> create(
      const std::string& path, Clock& clock, PersonOf person = CallerShares().person,
      std::shared_ptr<HangingThreads> hanging = std::make_shared<HangingThreads>());
  BeatServer(const BeatServer&) = delete;
  BeatServer& operator=(const BeatServer&) = delete;
  ~BeatServer();  // removes the socket

  // Takes in what is there, without waiting.
  void serve(const Handler& handler);
  // Can be read from (poll) when there is something to take in.
  int fd() const { return socket_.fd(); }
  const std::string& path() const { return path_; }

 private:
  BeatServer(std::string path, DatagramSocket socket, Clock& clock);
  Instant sent_at(const std::optional<timespec>& wall) const;

  std::string path_;
  DatagramSocket socket_;
  Clock& clock_;
};

// Sends a beat to who listens at `path`; never waits. A beat can tell of a promise: nothing is sent
// to a socket that is not root's or one's own (check_socket_file() of base/safe_path.h).
// Errors: not_found when nobody listens, busy when its queue is full, no_permission, io.
Result<void> send_beat(const std::string& path, std::string_view text);

}  // namespace derate
