// The daemon's unix sockets, which take a line of JSON and answer with one. The kernel says who
// calls.
#pragma once

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
#include "service/transport/caller_shares.h"
#include "service/transport/client_connection.h"
#include "service/transport/client_turns.h"
#include "service/transport/socket_closer.h"

namespace derate {

// Who may connect.
enum class Audience : std::uint8_t {
  owner_and_root,  // for a command each: a connection that is silent for kIdleTime is closed
  // Of this machine, for as long as they like; no user has more than a share of places and time.
  everyone,
};

class ControlServer {
 public:
  static constexpr std::size_t kLongestRequest = 64 << 10;
  static constexpr std::size_t kMostClients = 32;
  static constexpr Duration kIdleTime = std::chrono::seconds(5);
  // Of the audience `everyone`.
  static constexpr std::size_t kLongestOfEveryone = 8 << 10;
  // Users are counted as people (CallerShares). If all places are taken, a caller gets a place of
  // the person who has most, if that person has two more than the caller. Root and operators have
  // kKeptPlaces more. If these are taken, they get others' places, up to kMostOfOneUser. They lose
  // no place.
  static constexpr std::size_t kMostOfEveryone = 256;
  static constexpr std::size_t kMostOfOneUser = 64;
  // Callers, and requests of a connection, in one serve(): more wait for the next.
  static constexpr int kMostCallers = 80;
  static constexpr int kMostARound = 16;
  // Of each kRound all connections together get kBudget; what is left then goes on in the next,
  // where it stopped. Users take turns, and so do the connections of a user.
  static constexpr Duration kRound = RoundBudget::kRound;
  static constexpr Duration kBudget = RoundBudget::kBudget;

  // Replaces a socket on which no process listens. All servers of the process share `closer`.
  // Errors: busy if another process listens, no_permission, io.
  static Result<std::unique_ptr<ControlServer>> create(
      const std::string& path, Clock& clock, Audience audience = Audience::owner_and_root,
      std::shared_ptr<SocketCloser> closer = std::make_shared<SocketCloser>());
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ~ControlServer();  // removes the socket

  // Call it before the first serve(). By default each user is a person, and only root has reserved
  // places.
  void shares(CallerShares shares) { shares_ = std::move(shares); }

  // Empty: answer() comes later, and the connection's next request is not taken before.
  using Handler =
      std::function<std::optional<std::string>(std::string_view request, const Peer& peer)>;
  // The connection has ended, whoever ended it. Not called when the server goes.
  using Closed = std::function<void(const Peer& peer)>;
  // Answers what has come in, and does not wait for anything. A caller that does not read its
  // answers is not heard until it does. What it leaves undone, fd() says when to go on with.
  void serve(
      const Handler& handler, const Closed& closed = [](const Peer&) {});
  // The answer that was owed; nothing when the connection has ended.
  void answer(std::uint64_t connection, const std::string& text);

  // Can be read from (poll) when there is something to serve.
  int fd() const { return wakes_.get(); }
  const std::string& path() const { return path_; }

 private:
  ControlServer(std::string path, UniqueFd socket, Clock& clock, Audience audience,
                std::shared_ptr<SocketCloser> closer);
  Result<void> begin_watching();
  std::size_t longest_request() const;
  void take_callers();
  bool admit(const UniqueFd& socket, const Peer& who);
  void mark_ready();
  std::vector<Peer> hang_up();
  bool is_done(const ClientConnection& client) const;
  bool has_time() const;
  void wake_later(bool out_of_time);

  std::string path_;
  std::shared_ptr<SocketCloser> closer_;
  UniqueFd socket_, events_;  // `events_`: of all connections
  UniqueFd timer_, wakes_;    // `wakes_`: `events_` while there is time, and the next round
  Clock& clock_;
  Audience audience_;
  CallerShares shares_;
  std::uint64_t next_connection_ = 1;
  std::vector<ClientConnection> clients_;  // ascending by connection
  ClientTurns turns_;
  RoundBudget budget_;
};

// Sends a line to the daemon at `path` and waits for its answer.
// Errors: not_found when no daemon listens there, no_permission, io, gpu_stuck when no answer
// comes.
Result<std::string> control_call(const std::string& path, const std::string& request,
                                 Duration patience);

}  // namespace derate
