#include "lab/serving/governed_run.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lab/serving/phase_watch.h"
#include "lab/serving/test_serving.h"
#include "policy/published_serving/published_serving.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

GovernedServing under(const PolicyInfo& policy, const ServingTest& test) {
  GovernedServing out;
  out.policy = &policy;
  out.params = default_params(policy.params);
  out.highest = test.clock(1);
  out.lowest = test.clock(0.58);
  return out;
}

const PolicyInfo& max_freq() { return **find_policy("max-freq"); }

// Loop, sensors and GPU change nothing about a clock that is held: time by time as without them.
TEST(GovernedRun, AtAHeldClockItIsTheRunAtThatClock) {
  ServingTest test({.rate = 0.6, .until_s = 290, .seed = 9});
  test.spec.length_s = 300;
  const ServingRun wanted = run_at_clock(test.spec, test.clock(1));
  const auto got = run_governed(test.spec, under(max_freq(), test));
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->first_token_s.size(), wanted.first_token_s.size());
  for (std::size_t i = 0; i < wanted.first_token_s.size(); ++i) {
    ASSERT_EQ(got->first_token_s[i].has_value(), wanted.first_token_s[i].has_value()) << i;
    EXPECT_NEAR(got->first_token_s[i].value_or(0), wanted.first_token_s[i].value_or(0), 1e-6);
  }
  EXPECT_EQ(got->finished, wanted.finished);
  EXPECT_EQ(got->generated_tokens, wanted.generated_tokens);
  EXPECT_EQ(got->windows.size(), wanted.windows.size());
  EXPECT_EQ(got->windows[0].counts, wanted.windows[0].counts);
  EXPECT_NEAR(got->joules / wanted.joules, 1, 0.005);
  EXPECT_NEAR(got->prompts_j / wanted.prompts_j, 1, 0.02);
  EXPECT_NEAR(got->idle_j / wanted.idle_j, 1, 0.02);
}

// The engine begins with a round of the policy's, and has its whole time.
TEST(GovernedRun, AnyTickLeavesTheEngineItsTime) {
  ServingTest test({.until_s = 0});
  test.requests = {{0, 20, 5}, {19.9, 20, 5}};
  test.spec.requests = test.requests;
  test.spec.length_s = 20;
  for (const double tick_s : {0.07, 0.2, 0.3, 0.9}) {
    GovernedServing how = under(max_freq(), test);
    how.params.set("tick", {tick_s});
    const auto run = run_governed(test.spec, how);
    ASSERT_TRUE(run.ok());
    EXPECT_TRUE(run->first_token_s[1].has_value()) << tick_s;
    EXPECT_EQ(run->windows.size(), 1U) << tick_s;
  }
}

// The policy sees the engine's metrics, as old as they may be, and the promise.
TEST(GovernedRun, ThePolicyGetsMetricsAndPromises) {
  ServingTest test({.rate = 0.6, .until_s = 20, .seed = 9});
  test.spec.length_s = 20;
  GovernedServing how = under(max_freq(), test);
  how.promises = {latency("itl", 0.99, 0.05)};
  int rounds = 0, with_metrics = 0;
  how.see = [&](const Record& record) {
    ++rounds;
    EXPECT_EQ(record.decision.clock, test.clock(1));
    const WorkStatus& work = record.estimate.work;
    if (work.serving == nullptr) return;
    ++with_metrics;
    EXPECT_EQ(work.promises, how.promises);
    EXPECT_LE(record.estimate.time - work.serving->time, 250ms);
  };
  ASSERT_TRUE(run_governed(test.spec, how).ok());
  EXPECT_EQ(with_metrics, 100);  // 20 s, each 200 ms
  EXPECT_EQ(rounds, 125);        // 25 s, each 200 ms
}

// The truth is the simulated engine's own, step by step.
TEST(GovernedRun, PhasesOfTheEnergyAreFound) {
  ServingTest test({.rate = 0.3, .until_s = 3600, .seed = 9});
  test.spec.length_s = 3600;
  for (const char* policy : {"max-freq", "slo"}) {
    GovernedServing how = under(**find_policy(policy), test);
    how.promises = {latency("itl", 0.99, 0.15)};
    PhaseWatch phases(test.clock(1));
    how.see = [&](const Record& record) { phases.see(record); };
    const auto run = run_governed(test.spec, how);
    ASSERT_TRUE(run.ok());
    const PhaseEnergies& got = phases.sums();
    const double decoding_j = run->joules - run->prompts_j - run->idle_j;
    EXPECT_NEAR(got.prompts_j, run->prompts_j, 2 * got.unsure_j) << policy;
    EXPECT_LT(got.unsure_j, 0.25 * run->prompts_j) << policy;
    EXPECT_NEAR(got.prompts_j / run->prompts_j, 1, 0.1) << policy;
    EXPECT_NEAR(got.decoding_j / decoding_j, 1, 0.06) << policy;
    EXPECT_NEAR(got.prompts_j + got.decoding_j + got.waiting_j, run->joules, 0.02 * run->joules);
  }
}

// Policies of others run as the product's do: under a promise with room they save energy.
TEST(GovernedRun, RivalsRunInTheLab) {
  ServingTest test({.rate = 0.6, .until_s = 100, .seed = 9});
  test.spec.length_s = 100;
  const ServingRun top = run_at_clock(test.spec, test.clock(1));
  for (const PolicyInfo& rival : serving_rivals()) {
    GovernedServing how = under(rival, test);
    how.promises = {latency("itl", 0.9, 0.2)};
    const auto run = run_governed(test.spec, how);
    ASSERT_TRUE(run.ok()) << rival.name;
    EXPECT_LT(run->joules, 0.98 * top.joules) << rival.name;
    EXPECT_GT(run->finished, top.finished / 2) << rival.name;
  }
}

}  // namespace
}  // namespace derate
