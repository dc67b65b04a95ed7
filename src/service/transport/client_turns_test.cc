#include "service/transport/client_turns.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

namespace derate {
namespace {

using namespace std::chrono_literals;

// Of each of these users, connections in this order; each has a request.
std::vector<ClientConnection> connections_of(const std::vector<uid_t>& users) {
  std::vector<ClientConnection> out;
  for (const uid_t uid : users) {
    ClientConnection client{.socket = {}, .peer = {1, uid, out.size() + 1}};
    client.in = "a\n";
    client.end = 1;
    client.left = 1000;
    out.push_back(std::move(client));
  }
  return out;
}

std::vector<uid_t> any_users() {
  return *rc::gen::nonEmpty(rc::gen::container<std::vector<uid_t>>(rc::gen::inRange(0u, 5u)));
}

RC_GTEST_PROP(ClientTurns, UsersHaveTheSameTurnsAndSoHaveTheirConnections, ()) {
  auto clients = connections_of(any_users());
  ClientTurns turns;
  std::map<uid_t, int> by_user;
  std::map<std::uint64_t, int> by_connection;
  for (int i = *rc::gen::inRange(1, 100); i > 0; --i) {
    const ClientConnection* const next = turns.next(clients);
    RC_ASSERT(next != nullptr);
    ++by_user[next->peer.uid];
    ++by_connection[next->peer.connection];
  }
  for (const ClientConnection& one : clients)
    for (const ClientConnection& other : clients) {
      RC_ASSERT(std::abs(by_user[one.peer.uid] - by_user[other.peer.uid]) <= 1);
      if (one.peer.uid == other.peer.uid)
        RC_ASSERT(std::abs(by_connection[one.peer.connection] -
                           by_connection[other.peer.connection]) <= 1);
    }
}

TEST(ClientTurns, WhoHasNothingToDoHasNoTurn) {
  auto clients = connections_of({1, 2, 3, 4});
  clients[0].broken = true;
  clients[1].waits = true;
  clients[2].left = 0;
  ClientTurns turns;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(turns.next(clients), &clients[3]);
  clients[3].end = std::string::npos;
  clients[3].ready = false;
  EXPECT_EQ(turns.next(clients), nullptr);
}

RC_GTEST_PROP(PlaceFor, IsNeverRootsAndLeavesNobodyWithLessThanWhoCame, ()) {
  auto clients = connections_of(any_users());
  const uid_t uid = *rc::gen::inRange(0u, 6u);
  const auto count = [&](uid_t of) {
    return std::count_if(clients.begin(), clients.end(),
                         [&](const ClientConnection& client) { return client.peer.uid == of; });
  };
  const auto own = count(uid);
  const ClientConnection* const place = place_for(clients, static_cast<std::size_t>(own), uid == 0);
  for (const ClientConnection& client : clients)
    if (place == nullptr && client.peer.uid != 0)
      RC_ASSERT(uid != 0 && count(client.peer.uid) < own + 2);
  if (place == nullptr) return;
  RC_ASSERT(place->peer.uid != 0u);
  RC_ASSERT(uid == 0 || count(place->peer.uid) - 1 >= own + 1);
  for (const ClientConnection& client : clients)
    RC_ASSERT(client.peer.uid == 0 || count(client.peer.uid) <= count(place->peer.uid));
}

TEST(PlaceFor, TheConnectionThatWasIdleForLongestGoes) {
  auto clients = connections_of({7, 7, 7, 8});
  for (std::size_t i = 0; i < clients.size(); ++i) clients[i].heard = Instant(i * 1s);
  clients[1].in = clients[2].in = "";
  EXPECT_EQ(place_for(clients, 0, false), &clients[1]);
  clients[1].broken = true;
  EXPECT_EQ(place_for(clients, 0, false), &clients[2]);
  clients[2].broken = true;
  EXPECT_EQ(place_for(clients, 0, false), nullptr);  // one connection each
  EXPECT_EQ(place_for(clients, 9, true), &clients[0]);
}

// All ids of a person share that person's places. An operator loses no place.
TEST(PlaceFor, CountsPeople) {
  auto clients = connections_of({100000, 100001, 100002, 8, 8, 9, 9, 9, 9});
  for (std::size_t i = 0; i < 3; ++i) clients[i].peer.person = 1000;
  for (std::size_t i = 5; i < 9; ++i) clients[i].peer.keeps_place = true;
  EXPECT_EQ(place_for(clients, 0, false), &clients[0]);
  EXPECT_EQ(place_for(clients, 2, false), nullptr);
}

// If a connection without a place were closed, no place would become free.
TEST(PlaceFor, PassesOverWhoHasNone) {
  auto clients = connections_of({7, 7, 7, 8, 8});
  clients[0].left = clients[1].left = 0;
  const auto has_place = [](const ClientConnection& client) { return client.left > 0; };
  EXPECT_EQ(place_for(clients, 0, false, has_place), &clients[3]);
  EXPECT_EQ(place_for(clients, 0, false), &clients[0]);
}

TEST(ClientTurns, IdsOfOnePersonHaveOnesTurns) {
  auto clients = connections_of({100000, 100001, 100002, 8});
  for (std::size_t i = 0; i < 3; ++i) clients[i].peer.person = 1000;
  ClientTurns turns;
  int of_other = 0;
  for (int i = 0; i < 10; ++i) of_other += turns.next(clients)->peer.uid == 8u ? 1 : 0;
  EXPECT_EQ(of_other, 5);
}

TEST(RoundBudget, WhatIsSpentComesBackWithTheNextRound) {
  RoundBudget budget;
  budget.begin(Instant(1s));
  EXPECT_TRUE(budget.is_left(Instant(1s) + 4ms));
  budget.end(Instant(1s) + 4ms);
  budget.begin(Instant(1s) + 50ms);
  EXPECT_TRUE(budget.is_left(Instant(1s) + 50ms));
  EXPECT_FALSE(budget.is_left(Instant(1s) + 51ms));
  EXPECT_EQ(budget.until_next(Instant(1s) + 51ms), 49ms);
  budget.end(Instant(1s) + 51ms);
  budget.begin(Instant(1s) + 100ms);
  EXPECT_TRUE(budget.is_left(Instant(1s) + 104ms));
  EXPECT_GT(budget.until_next(Instant(2s)), Duration(0));
}

}  // namespace
}  // namespace derate
