// Fair shares of a socket for its callers: whose turn is next, which connection gives up its place
// when all are taken, and how much time they have together.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/clock.h"
#include "service/transport/client_connection.h"

namespace derate {

// Turns of clients: people take turns (Peer::share()), and so do the connections of one person. A
// client has a `peer` and reports whether it has_work().
class ClientTurns {
 public:
  // Who of those with work is next; null: nobody has any.
  template <class Clients>
  auto* next(Clients& clients) {
    typename Clients::value_type* out = nullptr;
    for (auto& client : clients)
      if (client.has_work() && (out == nullptr || is_before(client.peer, out->peer))) out = &client;
    if (out != nullptr) took(out->peer);
    return out;
  }
  // Forgets the turns of people without a connection.
  template <class Clients>
  void forget_others(const Clients& clients) {
    std::erase_if(connection_, [&](const auto& last) {
      return std::none_of(clients.begin(), clients.end(),
                          [&](const auto& client) { return client.peer.share() == last.first; });
    });
  }

 private:
  bool is_before(const Peer& a, const Peer& b) const;
  void took(const Peer& peer);

  uid_t person_ = 0;
  std::map<uid_t, std::uint64_t> connection_;  // by person: the connection of the last turn
};

// The client of that connection, of those that ascend by it; null: it has ended.
template <class Clients>
auto* find_client(Clients& clients, std::uint64_t connection) {
  const auto at = std::lower_bound(
      clients.begin(), clients.end(), connection,
      [](const auto& each, std::uint64_t wanted) { return each.peer.connection < wanted; });
  return at != clients.end() && at->peer.connection == connection ? &*at : nullptr;
}

// Places that are reserved for root and operators, in addition to the places of all.
inline constexpr std::size_t kKeptPlaces = 16;

// If all places are taken: the connection whose place a person with `own` connections gets. The
// person with most connections, root and operators excepted, loses the connection that was silent
// for longest, an idle one if there is any. Null if that person has less than two connections more,
// unless the new caller's place is reserved. Only connections with `has_place` count.
template <class Clients, class F>
auto* place_for(Clients& clients, std::size_t own, bool keeps_place, F has_place) {
  typename Clients::value_type* out = nullptr;
  const auto counts = [&](const auto& client) {
    return !client.peer.has_kept_place() && !client.broken && has_place(client);
  };
  std::map<uid_t, std::size_t> count;
  for (const auto& client : clients)
    if (counts(client)) ++count[client.peer.share()];
  const auto most = std::max_element(
      count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == count.end() || (!keeps_place && most->second < own + 2)) return out;
  const auto rank = [](const auto& client) { return std::pair(!client.is_idle(), client.heard); };
  for (auto& client : clients)
    if (client.peer.share() == most->first && counts(client) &&
        (out == nullptr || rank(client) < rank(*out)))
      out = &client;
  return out;
}
template <class Clients>
auto* place_for(Clients& clients, std::size_t own, bool keeps_place) {
  return place_for(clients, own, keeps_place, [](const auto&) { return true; });
}

// Time for all callers together: of each kRound they get a budget.
class RoundBudget {
 public:
  static constexpr Duration kRound = std::chrono::milliseconds(100);
  static constexpr Duration kBudget = std::chrono::milliseconds(5);

  explicit RoundBudget(Duration budget = kBudget) : budget_(budget) {}

  // Service begins, and ends: what is between is spent, of the time of day or of what `used` counts
  // (the thread's CPU time).
  void begin(Instant now) { begin(now, now.time_since_epoch()); }
  void end(Instant now) { end(now.time_since_epoch()); }
  bool is_left(Instant now) const { return is_left(now.time_since_epoch()); }
  void begin(Instant now, Duration used);
  void end(Duration used) { spent_ += used - began_; }
  bool is_left(Duration used) const { return spent_ + (used - began_) < budget_; }
  // Until the next round: above 0.
  Duration until_next(Instant now) const;

 private:
  Duration budget_;
  Instant round_ = Instant::min();  // when this one began
  Duration began_{}, spent_{};      // this service, and in this round before it
};

}  // namespace derate
