#include "service/transport/client_turns.h"

#include <algorithm>
#include <tuple>

namespace derate {

// Turns ascend by person, then by connection, from the last turn on; then they begin again with the
// lowest.
bool ClientTurns::is_before(const Peer& a, const Peer& b) const {
  const auto distance = [&](const Peer& peer) {
    const auto last = connection_.find(peer.share());
    return std::tuple(peer.share() <= person_, peer.share(),
                      last != connection_.end() && peer.connection <= last->second,
                      peer.connection);
  };
  return distance(a) < distance(b);
}

void ClientTurns::took(const Peer& peer) {
  person_ = peer.share();
  connection_[peer.share()] = peer.connection;
}

void RoundBudget::begin(Instant now, Duration used) {
  began_ = used;
  if (round_ != Instant::min() && now - round_ < kRound) return;
  round_ = now;
  spent_ = {};
}

Duration RoundBudget::until_next(Instant now) const {
  return std::max<Duration>(round_ + kRound - now, Duration(1));
}

}  // namespace derate
