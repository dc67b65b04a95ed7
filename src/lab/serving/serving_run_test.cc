#include "lab/serving/serving_run.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "lab/serving/test_serving.h"

namespace derate {
namespace {

using namespace literals;

// --- properties ----------------------------------------------------------------------------------

// A request that has begun has had its first token, and no interval before it.
RC_GTEST_PROP(ServingRunProperty, WindowsAddUpToTheWhole, (std::uint64_t seed)) {
  ServingTest test({.rate = *rc::gen::inRange(1, 4) / 10.0,
                    .until_s = *rc::gen::inRange(1, 1500) / 1.0,
                    .seed = seed});
  test.spec.length_s = *rc::gen::element(900, 1200, 1300);
  const ServingRun run = run_at_clock(test.spec, test.clock(0.8));
  RC_ASSERT(run.windows.size() == (test.spec.length_s > 1200 ? 3U : 2U));
  double intervals = 0, begun = 0;
  for (const LatencyCounts& each : run.windows) intervals += each.count();
  for (const auto& each : run.first_token_s) begun += each ? 1 : 0;
  RC_ASSERT(intervals == run.generated_tokens - begun);
  RC_ASSERT(run.prompts_j <= run.joules - run.idle_j);
}

RC_GTEST_PROP(ServingRunProperty, TheSameRunCausesNothing, (std::uint64_t seed)) {
  ServingTest test({.rate = 0.8, .until_s = 60, .seed = seed});
  test.spec.length_s = 60;
  const ServingRun run = run_at_clock(test.spec, test.clock(1));
  for (const CausedByClock& each : caused(test.spec, run, run, 0.05)) {
    RC_ASSERT(each.violations == 0);
    RC_ASSERT(each.late_first_tokens == 0);
  }
}

// --- clocks --------------------------------------------------------------------------------------

// With few requests and with more than the engine can serve.
TEST(ServingRun, ALowerClockFinishesNoMore) {
  for (const double rate : {0.3, 3.0}) {
    ServingTest test({.rate = rate, .until_s = 600, .seed = 5});
    const ServingRun top = run_at_clock(test.spec, test.clock(1));
    std::uint64_t before = 0;
    double joules = 0, late = 1;
    for (const double share : {0.6, 0.7, 0.8, 0.9, 1.0}) {
      const ServingRun run = run_at_clock(test.spec, test.clock(share));
      EXPECT_GE(run.finished, before) << rate << " " << share;
      EXPECT_GT(run.joules, joules) << rate << " " << share;
      const double late_now = caused(test.spec, run, top, 0.05).front().violations;
      EXPECT_LE(late_now, late) << rate << " " << share;
      before = run.finished, joules = run.joules, late = late_now;
    }
    EXPECT_EQ(late, 0);
  }
}

TEST(ServingRun, CapacityFallsWithTheClock) {
  ServingTest test({.rate = 5, .until_s = 300, .seed = 5});
  test.spec.length_s = 300;
  const double top = capacity(test.spec, test.clock(1));
  const double low = capacity(test.spec, test.clock(0.7));
  EXPECT_LT(top, 5);
  EXPECT_GT(low, 0.6 * top);
  EXPECT_LT(low, top);
}

TEST(ServingRun, AGpuWithoutRequestsIsIdle) {
  ServingTest test({.until_s = 0});
  const ServingRun run = run_at_clock(test.spec, test.clock(1));
  const double idle_w = test.spec.chip->idle_power.at(test.clock(1));
  EXPECT_NEAR(run.joules, 600 * idle_w, 1e-6);
  EXPECT_EQ(run.idle_j, run.joules);
  EXPECT_FALSE(quantile_edge(run, 0.99, 1).has_value());
  EXPECT_EQ(violations(run.windows.front(), 0.05), 0);
}

// Both runs have all windows, whenever the last token of either came.
TEST(ServingRun, AWindowWithoutAStepIsThere) {
  ServingTest test({.rate = 0.5, .until_s = 100, .seed = 2});
  test.requests.back().generated_tokens = 12'000;  // at a lower clock it ends after 600 s
  test.spec.length_s = 1800;
  const ServingRun top = run_at_clock(test.spec, test.clock(1));
  const ServingRun low = run_at_clock(test.spec, test.clock(0.6));
  EXPECT_EQ(top.windows.size(), 3U);
  EXPECT_EQ(low.windows.size(), 3U);
  EXPECT_EQ(caused(test.spec, low, top, 0.05).size(), 3U);
}

// Nothing counts that ends after the run.
TEST(ServingRun, EndsWhenItsTimeIsOver) {
  ServingTest test({.until_s = 0});
  test.requests = {{599.95, 2000, 5}};
  test.spec.requests = test.requests;
  const ServingRun run = run_at_clock(test.spec, test.clock(1));
  EXPECT_FALSE(run.first_token_s[0].has_value());
  EXPECT_EQ(run.generated_tokens, 0);
  EXPECT_LT(run.joules, 599.95 * 100 + 0.05 * 300);
}

// By hand: 90 tokens in (25 ms, 50 ms], 10 in (50 ms, 75 ms].
TEST(ServingRun, TheQuantileIsAnEdge) {
  ServingRun run;
  run.windows.assign(2, LatencyCounts(vllm_token_edges()));
  run.windows[0].add(0.03, 90);
  run.windows[1].add(0.06, 10);
  EXPECT_EQ(quantile_edge(run, 0.5, 1), 0.05);
  EXPECT_EQ(quantile_edge(run, 0.95, 1), 0.075);
  EXPECT_EQ(quantile_edge(run, 0.9, 2), 0.1);
  EXPECT_EQ(violations(run.windows[1], 0.05), 1);
  EXPECT_EQ(violations(run.windows[0], 0.05), 0);
}

}  // namespace
}  // namespace derate
