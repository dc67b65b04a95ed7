#include "token_gate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace derate::agent {
namespace {

constexpr uid_t kAnn = 1000, kBob = 1001;

// However its askers come: at most what is allowed at once and what the time has brought.
RC_GTEST_PROP(Allowance, NeverExceedsItsRate, ()) {
  const double rate = *rc::gen::inRange(1, 50);
  Allowance allowance(rate);
  FakeClock clock;
  double taken = 0;
  for (int i = *rc::gen::inRange(0, 300); i > 0; --i) {
    clock.advance(std::chrono::milliseconds(*rc::gen::inRange(0, 40)));
    taken += allowance.take(clock.now()) ? 1 : 0;
    RC_ASSERT(taken <= rate * (1 + seconds(clock.now().time_since_epoch())) + 1e-6);
  }
}

TEST(Allowance, ComesBackWithTime) {
  Allowance allowance(2);
  FakeClock clock;
  EXPECT_TRUE(allowance.take(clock.now()));
  EXPECT_TRUE(allowance.take(clock.now()));
  EXPECT_FALSE(allowance.take(clock.now()));
  clock.advance(std::chrono::milliseconds(500));
  EXPECT_TRUE(allowance.take(clock.now()));
  EXPECT_FALSE(allowance.take(clock.now()));
}

TEST(TokenGate, WhoTriesTokensTakesNothingFromWhoHasOne) {
  TokenGate gate;
  FakeClock clock;
  EXPECT_TRUE(gate.may_ask("Bearer good", kAnn, clock.now()));
  gate.heard("Bearer good", 200);
  int tries = 0;
  for (int i = 0; i < 1000; ++i)
    tries += gate.may_ask("Bearer try" + std::to_string(i), kAnn, clock.now()) ? 1 : 0;
  EXPECT_EQ(tries, TokenGate::kOfUnknown - 1);  // the good one was not known at first
  for (int i = 0; i < TokenGate::kOfKnown; ++i)
    EXPECT_TRUE(gate.may_ask("Bearer good", kAnn, clock.now()));
  EXPECT_FALSE(gate.may_ask("Bearer good", kAnn, clock.now()));
}

TEST(TokenGate, ATokenThatIsTakenBackIsUnknown) {
  TokenGate gate;
  FakeClock clock;
  gate.heard("Bearer good", 200);
  gate.heard("Bearer good", 401);
  for (int i = 0; i < TokenGate::kOfUnknown; ++i)
    EXPECT_TRUE(gate.may_ask("Bearer good", kAnn, clock.now()));
  EXPECT_FALSE(gate.may_ask("Bearer good", kAnn, clock.now()));
}

// An attacker can cause any answer that derated gives before it checks the token.
TEST(TokenGate, OnlyAnAnswerThatAdmittedATokenMakesItKnown) {
  for (int status = 100; status < 600; ++status) {
    TokenGate gate;
    FakeClock clock;
    gate.heard("Bearer it", status);
    int asked = 0;
    while (gate.may_ask("Bearer it", kAnn, clock.now())) ++asked;
    EXPECT_EQ(asked, status / 100 == 2 ? TokenGate::kOfKnown : TokenGate::kOfUnknown) << status;
  }
}

// A known token stays known, whatever status its requests have, except for 401.
TEST(TokenGate, ATokenIsForgottenFor401Alone) {
  for (int status = 300; status < 600; ++status) {
    TokenGate gate;
    FakeClock clock;
    gate.heard("Bearer it", 204);
    gate.heard("Bearer it", status);
    int asked = 0;
    while (gate.may_ask("Bearer it", kAnn, clock.now())) ++asked;
    EXPECT_EQ(asked, status == 401 ? TokenGate::kOfUnknown : TokenGate::kOfKnown) << status;
  }
}

int asked_at_once(TokenGate& gate, const std::string& authorization, Instant now) {
  int out = 0;
  for (int i = 0; i < 1000; ++i) out += gate.may_ask(authorization, kAnn, now) ? 1 : 0;
  return out;
}

// The newest has a place; the one that was not used for longest is a stranger again.
TEST(TokenGate, KeepsThoseThatWereUsedLast) {
  TokenGate gate;
  FakeClock clock;
  for (std::size_t i = 0; i < TokenGate::kMostKnown; ++i)
    gate.heard("Bearer " + std::to_string(i), 200);
  EXPECT_TRUE(gate.may_ask("Bearer 0", kAnn, clock.now()));
  gate.heard("Bearer new", 200);
  EXPECT_EQ(asked_at_once(gate, "Bearer new", clock.now()), TokenGate::kOfKnown);
  EXPECT_EQ(asked_at_once(gate, "Bearer 0", clock.now()), TokenGate::kOfKnown - 1);
  EXPECT_EQ(asked_at_once(gate, "Bearer 1", clock.now()), TokenGate::kOfUnknown);
}

// A user's guesses do not delay another user's unknown token, as after the agent's start. However
// many users guess, each has some allowance.
TEST(TokenGate, WhoTriesTokensKeepsNobodysNewOneOut) {
  TokenGate gate;
  FakeClock clock;
  for (int i = 0; i < 1000; ++i)
    (void)gate.may_ask("Bearer " + std::to_string(i), kBob, clock.now());
  EXPECT_TRUE(gate.may_ask("Bearer new", kAnn, clock.now()));
  for (uid_t user = 2000; user < 2000 + 2 * TokenGate::kMostUsers; ++user)
    for (int i = 0; i < TokenGate::kOfUnknown; ++i)
      (void)gate.may_ask("Bearer wrong", user, clock.now());
  EXPECT_FALSE(gate.may_ask("Bearer new", 5000, clock.now()));
  clock.advance(std::chrono::seconds(1));
  EXPECT_TRUE(gate.may_ask("Bearer new", 5000, clock.now()));
}

// A token has one place and one allowance, whatever the case of its scheme and the blanks.
TEST(TokenGate, ATokenIsKnownByItsSecret) {
  TokenGate gate;
  FakeClock clock;
  gate.heard("Bearer it", 200);
  int asked = 0;
  for (const char* const each : {"bearer it", "BEARER it", "Bearer   it", "Bearer it  "})
    for (int i = 0; i < TokenGate::kOfKnown; ++i)
      asked += gate.may_ask(each, kAnn, clock.now()) ? 1 : 0;
  EXPECT_EQ(asked, TokenGate::kOfKnown);
}

// Each rotation revokes a token that is never used again.
TEST(TokenGate, ATokenIsKnownAfterAnyNumberOfRotations) {
  TokenGate gate;
  FakeClock clock;
  for (std::size_t i = 0; i < 3 * TokenGate::kMostKnown; ++i) {
    const std::string token = "Bearer " + std::to_string(i);
    gate.heard(token, 200);
    ASSERT_EQ(asked_at_once(gate, token, clock.now()), TokenGate::kOfKnown) << i;
  }
}

}  // namespace
}  // namespace derate::agent
