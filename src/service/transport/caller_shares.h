// The share of places and time that a caller takes: its own, or that of its user.
#pragma once

#include <sys/types.h>

#include <functional>

#include "service/transport/client_connection.h"

namespace derate {

// The person that a user stands for: of a subordinate id its owner. For any thread; never waits.
using PersonOf = std::function<uid_t(uid_t uid)>;

struct CallerShares {
  PersonOf person = [](uid_t uid) { return uid; };
  // Root and operators: of the places some are theirs alone.
  std::function<bool(const Peer& peer)> keeps_place = [](const Peer& peer) {
    return peer.uid == 0;
  };

  void mark(Peer& peer) const {
    peer.person = person(peer.uid);
    peer.keeps_place = keeps_place(peer);
  }
};

}  // namespace derate
