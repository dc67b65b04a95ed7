// Datagram unix sockets to which the applications of this machine send heartbeats: one for all, and
// one for each user who works on a GPU, whose queue in the kernel no other user can fill. The
// kernel gives the sender and the time; which messages count is the caller's choice
// (govern/heartbeat_registry.h).
#pragma once

#include <sys/types.h>

#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
  // The same of one user's own socket.
  static constexpr int kMostOfUserARound = 64;
  // Users who have a socket of their own, at a time and of one person (subordinate ids).
  static constexpr std::size_t kMostUsers = 64, kMostOfPerson = 4;
  // A user's own socket stays for so long after the user's last process on a GPU.
  static constexpr Duration kKeepUser = std::chrono::minutes(1);

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
  ~BeatServer();  // removes the sockets

  // Opens a socket (own_beat_socket() of base/unix_address.h) for each of these users who has none,
  // which only that user and root can write to, and closes those of users who were not named for
  // kKeepUser. Errors: those of the first socket that could not be opened; that user goes on with
  // the socket of all.
  Result<void> serve_users(const std::set<uid_t>& users);
  // Takes in what is there, without waiting.
  void serve(const Handler& handler);
  // Can be read from (poll) when there is something to take in.
  int fd() const { return ready_.get(); }
  const std::string& path() const { return path_; }

 private:
  struct OwnSocket {
    DatagramSocket socket;
    std::string path;
    Instant wanted{};
  };

  BeatServer(std::string path, DatagramSocket socket, UniqueFd ready, Clock& clock, PersonOf person,
             std::shared_ptr<HangingThreads> hanging);
  Instant sent_at(const std::optional<timespec>& wall) const;
  void take(DatagramSocket& socket, int most, const Handler& handler);
  void close_unwanted();
  bool has_place(uid_t user) const;
  Result<void> open_own(uid_t user);

  std::string path_;
  DatagramSocket socket_;
  UniqueFd ready_;  // epoll over all sockets
  std::map<uid_t, OwnSocket> own_;
  Clock& clock_;
  PersonOf person_;
  std::shared_ptr<HangingThreads> hanging_;
};

// Sends a beat to who listens at `path`; never waits. A beat can tell of a promise: nothing is sent
// to a socket that is not root's or one's own (check_socket_file() of base/safe_path.h).
// Errors: not_found when nobody listens, busy when its queue is full, no_permission, io.
Result<void> send_beat(const std::string& path, std::string_view text);

}  // namespace derate
