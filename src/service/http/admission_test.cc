#include "service/http/admission.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"

namespace derate {
namespace {

constexpr uid_t kStranger = 54321, kAgent = 54322;

struct Gate {
  Gate() {
    Settings settings;
    settings.api_readers = settings.api_users = "root";
    settings.api_operators = "7";
    settings.api_agent = std::to_string(kAgent);
    roles.take(settings);
  }
  // "operator token ops", "401".
  std::string ask(const Peer& peer, const HttpFields& fields = {}) const {
    const auto out = admit({.fields = fields}, peer, roles, tokens);
    if (const auto* refused = std::get_if<HttpResponse>(&out)) {
      const bool asks = find_field(refused->fields, "WWW-Authenticate").has_value();
      EXPECT_EQ(asks, refused->status == 401);
      return std::to_string(refused->status);
    }
    const Peer& in = std::get<Peer>(out);
    return std::string(to_string(*in.role)) + " " + caller_name(in);
  }
  static HttpFields bearer(const std::string& token, const std::string& scheme = "Bearer") {
    return {{"Host", "localhost"}, {"authorization", scheme + " " + token}};
  }

  Folder folder;
  FakeClock clock;
  CallerRoles roles{Settings{}, {}};
  TokenBook tokens{folder.file("tokens.json"), clock, {}, TokenBook::Where::at_once};
};

TEST(Admission, IsByTheUserWithoutAToken) {
  const Gate gate;
  EXPECT_EQ(gate.ask({.uid = 0}), "admin uid 0");
  EXPECT_EQ(gate.ask({.uid = kStranger}), "403");
  EXPECT_EQ(gate.ask({.uid = kStranger, .groups = {7}}), "operator uid 54321");
  EXPECT_EQ(gate.ask({.uid = kAgent}), "agent uid 54322");
}

// A token says what its request may do: neither more than that, nor less, whoever brings it.
TEST(Admission, IsByTheTokenWhereThereIsOne) {
  Gate gate;
  const std::string ops =
      gate.tokens.create("ops", "operator", std::chrono::hours(1), "uid 0")->secret;
  ASSERT_TRUE(gate.tokens.poll().has_value());
  const std::string reader =
      gate.tokens.create("look", "reader", std::chrono::hours(1), "uid 0")->secret;
  ASSERT_TRUE(gate.tokens.poll().has_value());
  for (const uid_t uid : {uid_t{0}, kStranger, kAgent}) {
    EXPECT_EQ(gate.ask({.uid = uid}, Gate::bearer(ops)), "operator token ops");
    EXPECT_EQ(gate.ask({.uid = uid}, Gate::bearer(reader, "bEARER")), "reader token look");
    EXPECT_EQ(gate.ask({.uid = uid}, Gate::bearer(" " + reader + " ")), "reader token look");
    EXPECT_EQ(gate.ask({.uid = uid}, Gate::bearer(reader + "x")), "401");
    EXPECT_EQ(gate.ask({.uid = uid}, Gate::bearer(reader + " " + ops)), "401");
    EXPECT_EQ(gate.ask({.uid = uid}, Gate::bearer("")), "401");
    EXPECT_EQ(gate.ask({.uid = uid}, Gate::bearer(reader, "Basic")), "401");
    EXPECT_EQ(gate.ask({.uid = uid}, {{"Authorization", ""}}), "401");
  }
  gate.clock.advance(std::chrono::hours(1));
  EXPECT_EQ(gate.ask({.uid = 0}, Gate::bearer(ops)), "401");
}

// A request that the agent passes on takes its token's share. Requests with invalid tokens or
// fields take the agent's own share, whatever their number.
TEST(Admission, WhatTheAgentCarriesTakesItsTokensShare) {
  Gate gate;
  const auto made = [&](const char* name, const char* role) {
    auto out = gate.tokens.create(name, role, std::chrono::hours(1), "uid 0")->secret;
    EXPECT_TRUE(gate.tokens.poll().has_value());
    return out;
  };
  const std::string ops = made("ops", "operator"), look = made("look", "reader");
  const auto share = [&](uid_t uid, const HttpFields& fields) {
    return share_of({.fields = fields}, {.uid = uid}, gate.roles, gate.tokens);
  };
  const uid_t of_ops = share(kAgent, Gate::bearer(ops)),
              of_look = share(kAgent, Gate::bearer(look));
  EXPECT_NE(of_ops, kAgent);
  EXPECT_NE(of_look, kAgent);
  EXPECT_NE(of_ops, of_look);
  EXPECT_EQ(share(kAgent, Gate::bearer(" " + ops + " ", "bEARER")), of_ops);
  EXPECT_EQ(share(kAgent, Gate::bearer(ops + "x")), kAgent);
  EXPECT_EQ(share(kAgent, Gate::bearer(ops, "Basic")), kAgent);
  EXPECT_EQ(share(kAgent, {}), kAgent);
  EXPECT_EQ(share(kStranger, Gate::bearer(ops)), kStranger);
  EXPECT_EQ(gate.tokens.wrong(), 0u);
  // admit() gives the same share. An operator's token has a reserved place, also through the agent.
  const auto admitted = [&](const std::string& token) {
    const Peer agent{.uid = kAgent, .keeps_place = true};
    return std::get<Peer>(admit({.fields = Gate::bearer(token)}, agent, gate.roles, gate.tokens));
  };
  EXPECT_EQ(admitted(ops).share(), of_ops);
  EXPECT_TRUE(admitted(ops).has_kept_place());
  EXPECT_FALSE(admitted(look).has_kept_place());
  gate.clock.advance(std::chrono::hours(1));
  EXPECT_EQ(share(kAgent, Gate::bearer(ops)), kAgent);
}

}  // namespace
}  // namespace derate
