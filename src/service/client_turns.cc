#include "service/client_turns.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace derate {

ClientConnection* ClientTurns::next(std::span<ClientConnection> clients) {
  // After the last, by user and then by connection; the first again after all of them.
  const auto distance = [&](const ClientConnection& client) {
    const auto last = connection_.find(client.peer.uid);
    return std::tuple(client.peer.uid <= uid_, client.peer.uid,
                      last != connection_.end() && client.peer.connection <= last->second,
                      client.peer.connection);
  };
  ClientConnection* out = nullptr;
  for (ClientConnection& client : clients)
    if (client.has_work() && (out == nullptr || distance(client) < distance(*out))) out = &client;
  if (out == nullptr) return nullptr;
  uid_ = out->peer.uid;
  connection_[out->peer.uid] = out->peer.connection;
  return out;
}

void ClientTurns::forget_others(std::span<const ClientConnection> clients) {
  std::erase_if(connection_, [&](const auto& last) {
    return std::none_of(clients.begin(), clients.end(), [&](const ClientConnection& client) {
      return client.peer.uid == last.first;
    });
  });
}

ClientConnection* place_for(std::span<ClientConnection> clients, uid_t uid, std::size_t own) {
  std::map<uid_t, std::size_t> count;
  for (const ClientConnection& client : clients)
    if (client.peer.uid != 0 && !client.broken) ++count[client.peer.uid];
  const auto most = std::max_element(
      count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == count.end() || (uid != 0 && most->second < own + 2)) return nullptr;
  const auto rank = [](const ClientConnection& client) {
    const bool idle = !client.waits && client.in.empty() && client.out.empty();
    return std::pair(!idle, client.heard);
  };
  ClientConnection* out = nullptr;
  for (ClientConnection& client : clients)
    if (client.peer.uid == most->first && !client.broken &&
        (out == nullptr || rank(client) < rank(*out)))
      out = &client;
  return out;
}

void RoundBudget::begin(Instant now) {
  began_ = now;
  if (round_ != Instant::min() && now - round_ < kRound) return;
  round_ = now;
  spent_ = {};
}

Duration RoundBudget::until_next(Instant now) const {
  return std::max<Duration>(round_ + kRound - now, Duration(1));
}

}  // namespace derate
