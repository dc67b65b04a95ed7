#include <gtest/gtest.h>

#include "policy/published_serving/test_engine.h"

namespace derate {
namespace {

constexpr int kProfiled = 5 * (40 + 4);  // looks

TEST(LinearItl, LowersTheClockWhereThereIsTime) {
  EngineTest engine("linear-itl");
  EXPECT_EQ(engine.after(kProfiled), engine.lowest());
}

// The lowest of its five clocks at which 26 ms at the highest become at most 36 ms: 1109 MHz or
// more, of 952, 1097, 1242, 1387 and 1530.
TEST(LinearItl, TakesTheLowestClockThatKeepsTheTarget) {
  EngineTest engine("linear-itl");
  engine.promised_s = 0.04;
  engine.running = 6;
  const Megahertz clock = engine.after(kProfiled);
  EXPECT_GT(clock, Megahertz(1200));
  EXPECT_LT(clock, Megahertz(1260));
  EXPECT_LE(engine.interval_s(), 0.036);
}

TEST(LinearItl, LearnsHowRequestsSlowEachOtherDown) {
  EngineTest engine("linear-itl");
  engine.promised_s = 0.05;
  for (int i = 0; i < 2 * kProfiled; ++i) {
    engine.running = 1 + i % 16;
    engine.look();
  }
  engine.running = 2;
  const Megahertz few = engine.after(1);
  engine.running = 16;
  EXPECT_LT(few, engine.after(1));
}

TEST(LinearItl, HoldsTheTopClockWhileRequestsWait) {
  EngineTest engine("linear-itl");
  EXPECT_LT(engine.after(kProfiled), engine.top());
  engine.waiting = 1;
  EXPECT_EQ(engine.after(1), engine.top());
}

TEST(LinearItl, HoldsTheTopClockWithoutMetrics) {
  EngineTest engine("linear-itl");
  EXPECT_LT(engine.after(kProfiled), engine.top());
  engine.metrics = false;
  EXPECT_EQ(engine.after(10), engine.top());
}

}  // namespace
}  // namespace derate
