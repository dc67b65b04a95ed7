#include "lab/figures.h"

#include <gtest/gtest.h>

#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

Plan plan_of(const std::string& more = "") {
  const auto e = parse_experiment(
      "[experiment]\nrepetitions = 3\n[gpus]\nchips = [\"V100-SXM2\"]\n[workloads]\n"
      "fitted = [\"GeMM\", \"BWtest\"]\n" +
          more + "[[policy]]\nname = \"geepafs\"\n",
      "x.toml");
  CHECK(e.ok());
  auto plan = make_plan(*e, "/nowhere");
  CHECK(plan.ok());
  return *std::move(plan);
}

StoredJob job(const char* policy, const char* app, int repetition, Duration time, double joules) {
  StoredJob out;
  out.session = {"V100-SXM2", "", policy, repetition};
  out.job.app = app;
  out.job.time = time;
  out.job.work = 100;
  out.job.energy = Joules(joules);
  return out;
}

// GeMM: 125 s against 100 s is a loss of 0.2; 10 kJ against 20 kJ for the same work a gain of 1.
TEST(Figures, AreThoseOfTheDefinitions) {
  const Plan plan = plan_of();
  std::vector<StoredJob> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(job("max-freq", "GeMM", i, 100s, 20e3));
    jobs.push_back(job("max-freq", "BWtest", i, 100s, 10e3));
    jobs.push_back(job("geepafs", "GeMM", i, 125s, 10e3));
    jobs.push_back(job("geepafs", "BWtest", i, 100s, 8e3));
  }
  const auto stages = figures(plan, jobs);
  ASSERT_EQ(stages.size(), 1u);
  ASSERT_EQ(stages[0].policies.size(), 2u);
  const PolicyResult& baseline = stages[0].policies[0];
  EXPECT_EQ(baseline.loss.mean, 0);
  EXPECT_EQ(baseline.gain.mean, 0);
  const PolicyResult& policy = stages[0].policies[1];
  EXPECT_NEAR(policy.loss.mean, 0.1, 1e-12);
  EXPECT_NEAR(policy.gain.mean, (1 + 0.25) / 2, 1e-12);
  EXPECT_NEAR(policy.saving, (0.5 + 0.2) / 2, 1e-12);
  EXPECT_NEAR(policy.worst_loss, 0.2, 1e-12);
  EXPECT_EQ(policy.worst_app, "GeMM");
  EXPECT_EQ(policy.broken, 3);
  EXPECT_EQ(policy.jobs, 6);
  EXPECT_EQ(policy.apps_over, 1);
  // Jobs that are all alike: the interval of one application is a point, that of two is not.
  ASSERT_TRUE(policy.loss.low && policy.apps[0].loss.low);
  EXPECT_NEAR(*policy.loss.low, 0, 1e-12);
  EXPECT_NEAR(*policy.loss.high, 0.2, 1e-12);
  for (const AppResult& app : policy.apps) EXPECT_NEAR(*app.loss.low, *app.loss.high, 1e-12);
  EXPECT_NEAR(policy.apps[0].slowdown(), 0.25, 1e-12);
}

TEST(Figures, FailedJobsAreCountedAndNeverAveraged) {
  const Plan plan = plan_of();
  std::vector<StoredJob> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(job("max-freq", "GeMM", i, 100s, 20e3));
    jobs.push_back(job("geepafs", "GeMM", i, 110s, 15e3));
  }
  jobs[1].job.error = "made no progress";  // of the policy
  jobs[1].job.time = 1s;
  jobs[2].job.error = "exit code 1";  // of the baseline
  const PolicyResult policy = figures(plan, jobs)[0].policies[1];
  ASSERT_EQ(policy.apps.size(), 1u);
  EXPECT_EQ(policy.apps[0].jobs, 1);
  EXPECT_EQ(policy.apps[0].failed, 2);
  EXPECT_NEAR(policy.loss.mean, 1 - 100.0 / 110, 1e-12);
  EXPECT_FALSE(policy.loss.low);
}

TEST(Figures, ShortJobsBreakNoPromise) {
  const Plan plan = plan_of();
  std::vector<StoredJob> jobs{job("max-freq", "GeMM", 0, 20s, 1e3),
                              job("geepafs", "GeMM", 0, 29s, 1e3)};
  EXPECT_EQ(figures(plan, jobs)[0].policies[1].broken, 0);
  EXPECT_EQ(figures(plan, jobs)[0].policies[1].apps_over, 1);
}

// What is judged is the same for all policies: jobs that take 30 s under the baseline.
TEST(Figures, TheBaselineSaysWhichJobsAreLongEnough) {
  std::vector<StoredJob> jobs{
      job("max-freq", "GeMM", 0, 29s, 1e3), job("geepafs", "GeMM", 0, 40s, 1e3),
      job("max-freq", "BWtest", 0, 31s, 1e3), job("geepafs", "BWtest", 0, 40s, 1e3)};
  jobs[3].id = 17;
  const PolicyResult policy = figures(plan_of(), jobs)[0].policies[1];
  EXPECT_EQ(policy.judged, 1);
  EXPECT_EQ(policy.broken, 1);
  EXPECT_EQ(policy.broken_share(), 1.0);
  EXPECT_EQ(policy.apps[1].worst_job, 17);
}

TEST(Figures, WhatHasNotRunHasNoFigures) {
  const auto stage = figures(plan_of(), std::vector{job("max-freq", "GeMM", 0, 100s, 1e3)})[0];
  EXPECT_EQ(stage.policies[1].jobs, 0);
  EXPECT_EQ(stage.policies[1].failed, 0);
  EXPECT_FALSE(stage.policies[1].broken_share());
}

TEST(Plan, ThePromiseIsTheExperimentsWhereAPolicyHasNoneOfItsOwn) {
  const auto e = parse_experiment(
      "[experiment]\ndelta = 0.05\n[gpus]\nchips = [\"V100-SXM2\"]\n[workloads]\nfitted = "
      "[\"GeMM\"]\n[[policy]]\nname = \"geepafs\"\n[[policy]]\nname = \"geepafs\"\nlabel = "
      "\"p80\"\nset = {delta = 0.2}\n[[policy]]\nname = \"nv-boost\"\n",
      "x.toml");
  ASSERT_TRUE(e.ok()) << e.error().message;
  const auto plan = make_plan(*e, "/nowhere");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->policies[1].params.number("delta"), 0.05);
  EXPECT_EQ(plan->policies[2].params.number("delta"), 0.2);
  const auto stage = figures(*plan, {})[0];
  EXPECT_EQ(stage.policies[1].delta, 0.05);
  EXPECT_EQ(stage.policies[2].delta, 0.2);
  EXPECT_EQ(stage.policies[3].delta, 0.05);
}

TEST(Plan, TriesThePoliciesParametersOnTheChip) {
  const auto e = parse_experiment(
      "[gpus]\nchips = [\"V100-SXM2\"]\n[workloads]\nfitted = [\"GeMM\"]\n[[policy]]\nname = "
      "\"geepafs\"\nset = {probe_clocks = [1000, 1300]}\n",
      "x.toml");
  ASSERT_TRUE(e.ok()) << e.error().message;
  const auto plan = make_plan(*e, "/nowhere");
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().message.find("x.toml:5:1: geepafs on "), 0u) << plan.error().message;
}

// Work whose counters are not known is taken when it is named, with a warning.
TEST(Plan, AllWorkloadsAreThoseThatShowCounters) {
  const auto plan = [](const std::string& fitted) {
    const auto e = parse_experiment("[gpus]\nchips = [\"H200\"]\n[workloads]\nfitted = [" + fitted +
                                        "]\n[[policy]]\nname = \"geepafs\"\n",
                                    "x.toml");
    CHECK(e.ok());
    auto made = make_plan(*e, "/nowhere");
    CHECK(made.ok());
    return *std::move(made);
  };
  const auto all = plan("\"*\""), named = plan("\"amber_stmv\"");
  EXPECT_EQ(std::count(all.stages[0].apps.begin(), all.stages[0].apps.end(), "amber_stmv"), 0);
  EXPECT_TRUE(all.warnings.empty());
  ASSERT_EQ(named.warnings.size(), 1u);
  EXPECT_NE(named.warnings[0].find("amber_stmv"), std::string::npos);
}

// No clock and no mixture of two beats the bound, which is at least the oracle's.
TEST(Figures, TheBoundIsAboveTheOracleAndBothKeepThePromise) {
  const auto stage = figures(plan_of(), {})[0];
  ASSERT_EQ(stage.hindsight.size(), 2u);
  for (const auto& app : stage.hindsight) {
    EXPECT_GE(app.bound.gain, app.oracle.outcome.gain);
    EXPECT_LE(app.bound.loss, 0.1 + 1e-12);
    EXPECT_LE(app.oracle.outcome.loss, 0.1 + 1e-12);
  }
  ASSERT_FALSE(stage.frontier.empty());
  EXPECT_EQ(stage.frontier.back().result.mean.loss, 0);
  EXPECT_EQ(frontier_gain(stage.frontier, 0), 0);
  EXPECT_FALSE(frontier_gain(stage.frontier, 0.9));
}

TEST(Plan, StressIsEveryCombination) {
  const Plan plan = plan_of("[stress]\ncounter_window_s = [0.2, 1]\ndrift_kelvin = [0, 30]\n");
  ASSERT_EQ(plan.stages.size(), 4u);
  EXPECT_EQ(plan.session_count(), 4u * 2 * 3);
  EXPECT_EQ(plan.stages[3].cell.text(), "counter window 1 s, drift 30 K");
  EXPECT_EQ(plan.stages[3].simulation->circumstances.chip.sensors.utilisation.window, 1s);
  EXPECT_EQ(plan.stages[2].simulation->circumstances.drift_kelvin, 0);
}

TEST(Plan, EveryPolicyMeetsTheSameOrder) {
  const Plan plan = plan_of();
  const auto order = [&](std::size_t index) {
    std::vector<std::string> out;
    for (const SessionJob& next : session_spec(plan, index).jobs)
      out.push_back(next.workload->name);
    return out;
  };
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(order(i), order(i + 3));
    EXPECT_EQ(session_spec(plan, i).seed, session_spec(plan, i + 3).seed);
    EXPECT_EQ(session_key(plan, i).repetition, static_cast<int>(i));
  }
}

TEST(Plan, NamesThatAreNotKnownAreToldWithTheirPlace) {
  const auto wrong = [](const std::string& text) {
    const auto e = parse_experiment(text, "x.toml");
    CHECK(e.ok());
    const auto plan = make_plan(*e, "/nowhere");
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? "" : plan.error().message;
  };
  const std::string gpus = "[gpus]\nchips = [\"V100-SXM2\"]\n";
  const std::string policy = "[[policy]]\nname = \"geepafs\"\n";
  EXPECT_EQ(wrong(gpus + "[workloads]\nfitted = [\"Doom\"]\n" + policy).find("x.toml:4:10: "), 0u);
  EXPECT_EQ(wrong(gpus + "[workloads]\nmixes = [\"x\"]\n" + policy)
                .find("x.toml:4:9: there is no mix 'x'; there are training"),
            0u);
  EXPECT_EQ(wrong(gpus + "[workloads]\ntables = \"v100\"\n" + policy)
                .find("x.toml:4:10: there is no 'v100/performance.csv' and no "
                      "'/nowhere/v100/performance.csv'"),
            0u);
  EXPECT_EQ(wrong(gpus + "[workloads]\nmixes = [\"*\"]\n[[policy]]\nname = \"turbo\"\n")
                .find("x.toml:5:1: "),
            0u);
  EXPECT_EQ(wrong("[gpus]\nchips = [\"Voodoo2\"]\n[workloads]\nmixes = [\"*\"]\n" + policy)
                .find("x.toml:2:9: "),
            0u);
  EXPECT_EQ(wrong(gpus + "[workloads]\nmixes = [\"*\"]\npublished = \"p.csv\"\n" + policy)
                .find("x.toml:5:13: there is no 'p.csv'"),
            0u);
}

// Commands on a real GPU: apps, no hindsight, and what was measured of them.
TEST(Plan, OfARealGpuHasCommandsAndNoHindsight) {
  const auto e = parse_experiment(
      "[experiment]\nplace = \"real\"\nrepetitions = 1\n[[policy]]\nname = \"nv-boost\"\n"
      "[[command]]\nname = \"a\"\nrun = \"true\"\n[[command]]\nname = \"b\"\nrun = \"true\"\n",
      "x.toml");
  ASSERT_TRUE(e.ok()) << e.error().message;
  const auto plan = make_plan(*e, "", "Voodoo2");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->session_count(), 1u);
  EXPECT_EQ(session_order(*plan, 0).size(), 2u);
  StoredJob job;
  job.session = session_key(*plan, 0);
  EXPECT_EQ(job.session.chip, "Voodoo2");
  EXPECT_EQ(job.session.policy, "nv-boost");
  job.job.app = "b";
  job.job.work = 30;
  job.job.work_unit = "GB";
  job.job.time = std::chrono::seconds(2);
  job.job.energy = Joules(100);
  job.job.activity.dram = Fraction(0.5);
  const auto stages = figures(*plan, std::vector<StoredJob>{job});
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_FALSE(stages[0].oracle);
  ASSERT_EQ(stages[0].policies.size(), 1u);
  ASSERT_EQ(stages[0].policies[0].apps.size(), 1u);
  const AppResult& app = stages[0].policies[0].apps[0];
  EXPECT_EQ(app.rate, 15);
  EXPECT_EQ(app.work_unit, "GB");
  EXPECT_EQ(app.mean_power(), Watts(50));
  EXPECT_EQ(app.activity.dram, Fraction(0.5));
  EXPECT_FALSE(app.activity.tensor);
}

}  // namespace
}  // namespace derate
