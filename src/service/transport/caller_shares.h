// The person whose share of places and time a caller takes, and whether its place is reserved.
#pragma once

#include <sys/types.h>

#include <functional>

#include "service/transport/client_connection.h"

namespace derate {

// Returns the person that a user counts as, such as the owner of a subordinate id. Callable from
// any thread; never blocks.
using PersonOf = std::function<uid_t(uid_t uid)>;

struct CallerShares {
  PersonOf person = [](uid_t uid) { return uid; };
  // Whether the caller is root or an operator, for whom some places are reserved.
  std::function<bool(const Peer& peer)> keeps_place = [](const Peer& peer) {
    return peer.uid == 0;
  };

  void mark(Peer& peer) const {
    peer.person = person(peer.uid);
    peer.keeps_place = keeps_place(peer);
  }
};

}  // namespace derate
