#include "policy/published_serving/engine_looks.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <vector>

namespace derate {
namespace {

using namespace std::chrono_literals;

SharedServingState state_at(Duration time, std::vector<double> counts, std::uint64_t run = 0) {
  ServingState out;
  out.time = Instant(time);
  out.run = run;
  out.between_tokens = LatencyHistogram{{0.01, 0.02, 0.04}, std::move(counts), 1};
  return std::make_shared<ServingState>(out);
}

RC_GTEST_PROP(EngineLooksProperty, QuantilesRiseAndStayWithinTheEdges, ()) {
  std::vector<double> counts(4);
  double all = 0;
  for (double& each : counts) each = all += *rc::gen::inRange(0, 50);
  EngineLooks looks(10s);
  looks.look(state_at(0s, {0, 0, 0, 0}));
  looks.look(state_at(1s, counts));
  double before = 0;
  for (const double share : {0.1, 0.5, 0.9, 0.99, 1.0}) {
    const auto value = looks.quantile(share);
    RC_ASSERT(value.has_value() == (all > 0));
    RC_ASSERT(value.value_or(0.04) >= before);
    RC_ASSERT(value.value_or(0.04) <= 0.04);
    before = value.value_or(0);
  }
}

// Half of the bucket from 10 to 20 ms lies below the median.
TEST(EngineLooks, InterpolatesInABucket) {
  EngineLooks looks(10s);
  EXPECT_FALSE(looks.look(state_at(0s, {5, 5, 5, 5})).has_value());
  EXPECT_FALSE(looks.quantile(0.5).has_value());
  const auto change = looks.look(state_at(1s, {15, 25, 35, 35}));
  EXPECT_EQ(change->intervals, 30);
  EXPECT_DOUBLE_EQ(*looks.quantile(0.5), 0.015);
  EXPECT_DOUBLE_EQ(*looks.quantile(1), 0.04);
}

TEST(EngineLooks, ForgetsWhatIsOld) {
  EngineLooks looks(10s);
  looks.look(state_at(0s, {0, 0, 0, 0}));
  looks.look(state_at(1s, {0, 0, 100, 100}));
  looks.look(state_at(11s, {100, 100, 200, 200}));
  EXPECT_DOUBLE_EQ(*looks.quantile(1), 0.01);
  EXPECT_TRUE(looks.fresh(Instant(13s)));
  EXPECT_FALSE(looks.fresh(Instant(13s + 1ms)));
}

TEST(EngineLooks, AnEngineThatBeganAnewIsAnother) {
  EngineLooks looks(10s);
  looks.look(state_at(0s, {0, 0, 0, 10}));
  EXPECT_FALSE(looks.look(state_at(1s, {0, 0, 0, 20}, 1)).has_value());
  EXPECT_FALSE(looks.look(state_at(2s, {0, 0, 0, 5}, 1)).has_value());
  EXPECT_EQ(looks.look(state_at(3s, {0, 0, 0, 6}, 1))->intervals, 1);
  EXPECT_FALSE(looks.look(nullptr).has_value());
  EXPECT_EQ(looks.newest().time, Instant(3s));
}

}  // namespace
}  // namespace derate
