// How callers of a socket share it: whose turn is next, who gives up a place when all are taken,
// and how much time they have together.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>

#include "base/clock.h"
#include "service/client_connection.h"

namespace derate {

// Whose turn was the last: the next one's is after it. Users take turns, and so do the connections
// of a user.
class ClientTurns {
 public:
  // Who of those with work is next; null: nobody has any.
  ClientConnection* next(std::span<ClientConnection> clients);
  // Keeps the turns of users who are connected.
  void forget_others(std::span<const ClientConnection> clients);

 private:
  uid_t uid_ = 0;
  std::map<uid_t, std::uint64_t> connection_;  // the last of each user that is connected
};

// Whose place a user with `own` connections gets when all are taken: of the user who has most, root
// aside, the connection that was silent for longest, an idle one if there is any. Null where that
// would be no fairer: that user has less than two more than this one, who is not root.
ClientConnection* place_for(std::span<ClientConnection> clients, uid_t uid, std::size_t own);

// Time for all callers together: of each kRound they get kBudget.
class RoundBudget {
 public:
  static constexpr Duration kRound = std::chrono::milliseconds(100);
  static constexpr Duration kBudget = std::chrono::milliseconds(5);

  // Service begins, and ends: what is between is spent.
  void begin(Instant now);
  void end(Instant now) { spent_ += now - began_; }
  bool is_left(Instant now) const { return spent_ + (now - began_) < kBudget; }
  // Until the next round: above 0.
  Duration until_next(Instant now) const;

 private:
  Instant round_ = Instant::min(), began_{};  // of this round, and of this service
  Duration spent_{};                          // in this round, before this service
};

}  // namespace derate
