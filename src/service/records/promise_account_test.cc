#include "service/records/promise_account.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

// Adds that performance for that long, in ticks; the changes that it made.
std::vector<PromiseAccount::Verdict> run(PromiseAccount& account, double estimated, Duration time) {
  std::vector<PromiseAccount::Verdict> out;
  for (Duration at{}; at < time; at += 100ms)
    if (const auto turned = account.add({estimated, 0.9}, 100ms)) out.push_back(*turned);
  return out;
}

TEST(PromiseAccount, TellsOnceThatItIsBrokenAndOnceThatItIsKept) {
  PromiseAccount account;
  EXPECT_TRUE(run(account, 0.95, 1h).empty());
  const auto broken = run(account, 0.8, 10min);
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_TRUE(broken[0].broken);
  EXPECT_NEAR(broken[0].performance, 0.8, 1e-9);
  EXPECT_NEAR(broken[0].promise, 0.9, 1e-9);
  EXPECT_NEAR(seconds(broken[0].time), 6, 0.3);  // the 0.6 s that are missing, at a tenth of work
  const auto kept = run(account, 0.92, 10min);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_FALSE(kept[0].broken);
}

// What was done beyond the promise may be spent, as the policy spends it.
TEST(PromiseAccount, WhatWasSavedUpMayBeSpent) {
  PromiseAccount account;
  (void)run(account, 1.0, 15s);                  // 1.5 s
  EXPECT_TRUE(run(account, 0.85, 40s).empty());  // spends 2.0 s of them
  EXPECT_EQ(run(account, 0.85, 4s).size(), 1u);  // and 0.2 more
}

TEST(PromiseAccount, WhatIsNotKnownTellsNothing) {
  PromiseAccount account;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_FALSE(account.add({std::nullopt, 0.9}, 1s));
    EXPECT_FALSE(account.add({0.1, std::nullopt}, 1s));
  }
}

// However performance moves, changes come in turn, and no more than about one a minute.
RC_GTEST_PROP(PromiseAccount, DoesNotFlap, ()) {
  PromiseAccount account;
  int turns = 0;
  bool broken = false;
  const auto levels =
      *rc::gen::container<std::vector<int>>(600, rc::gen::inRange(80, 101));  // a second each
  for (const int level : levels)
    for (const auto& turned : run(account, level / 100.0, 1s)) {
      RC_ASSERT(turned.broken != broken);
      RC_ASSERT(turned.broken == (turned.performance < turned.promise));
      broken = turned.broken;
      ++turns;
    }
  RC_ASSERT(turns <= 21);  // ten minutes: a minute until it is kept each time
}

}  // namespace
}  // namespace derate
