#include <gtest/gtest.h>

#include "policy/published_serving/test_engine.h"

namespace derate {
namespace {

// With power 40 + 200 s^3 and a delay of 1 / s at the share s of the clock, power times delay is
// least at s = 0.46, below the envelope: it ends near the lowest clock, whatever is promised.
TEST(Agft, LowersTheClock) {
  for (const double promised_s : {0.15, 0.02}) {
    EngineTest engine("agft");
    engine.promised_s = promised_s;
    engine.after(1500);
    double share = 0;
    for (int i = 0; i < 100; ++i) share += engine.after(1) / engine.top() / 100;
    EXPECT_LT(share, 0.8);
  }
}

TEST(Agft, HoldsTheTopClockWithoutMetrics) {
  EngineTest engine("agft");
  engine.after(200);
  engine.metrics = false;
  EXPECT_EQ(engine.after(10), engine.top());
}

TEST(Agft, GoesOnWithAnEngineThatBeganAnew) {
  EngineTest engine("agft");
  engine.after(1500);
  engine.begin_anew();
  EXPECT_LT(engine.after(100), engine.top());
}

// All rivals: their parameters' defaults make a policy, their names differ from those of the
// product's.
TEST(ServingRivals, AreNoPoliciesOfTheProduct) {
  EXPECT_EQ(serving_rivals().size(), 3U);
  for (const PolicyInfo& info : serving_rivals()) {
    EXPECT_FALSE(find_policy(info.name).ok()) << info.name;
    EXPECT_NE(make_rival(info.name), nullptr);
    EXPECT_EQ(policy_tick(default_params(info.params)), std::chrono::milliseconds(250));
  }
}

}  // namespace
}  // namespace derate
