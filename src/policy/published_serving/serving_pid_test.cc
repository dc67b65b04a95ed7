#include <gtest/gtest.h>

#include "policy/published_serving/test_engine.h"

namespace derate {
namespace {

// 24 ms at the highest clock: 135 ms would allow any clock.
TEST(ServingPid, LowersTheClockWhereThereIsTime) {
  EngineTest engine("serving-pid");
  EXPECT_EQ(engine.after(400), engine.lowest());
}

TEST(ServingPid, RaisesItWhereThereIsNone) {
  EngineTest engine("serving-pid");
  engine.after(400);
  engine.promised_s = 0.025;
  EXPECT_EQ(engine.after(400), engine.top());
}

// Intervals of 24 to 38 ms are in one bucket, whose 99th percentile is taken to be 49.75 ms.
TEST(ServingPid, SeesNoFurtherThanTheBucket) {
  EngineTest engine("serving-pid");
  engine.promised_s = 0.05;
  engine.running = 6;
  EXPECT_EQ(engine.after(400), engine.top());
}

TEST(ServingPid, HoldsTheTopClockWithoutMetrics) {
  EngineTest engine("serving-pid");
  EXPECT_LT(engine.after(200), engine.top());
  engine.metrics = false;
  EXPECT_EQ(engine.after(10), engine.top());
  EXPECT_EQ(engine.after(100), engine.top());
}

}  // namespace
}  // namespace derate
