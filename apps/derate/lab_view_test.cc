#include "lab_view.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/json.h"
#include "test_text.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

Plan plan_of(const std::string& more = "") {
  const auto e = parse_experiment(
      "[experiment]\nname = \"x\"\nrepetitions = 3\n[gpus]\nchips = [\"V100-SXM2\"]\n[workloads]\n"
      "fitted = [\"GeMM\", \"BWtest\"]\n" +
          more + "[[policy]]\nname = \"geepafs\"\n",
      "x.toml");
  CHECK(e.ok());
  auto plan = make_plan(*e, "/nowhere");
  CHECK(plan.ok());
  return *std::move(plan);
}

// A job of 100 s and 20 kJ under max-freq, of 125 s and 10 kJ under geepafs.
StoredJob job(const StageResult& stage, const std::string& policy, int repetition) {
  StoredJob out;
  out.session = {stage.chip, stage.cell, policy, repetition};
  out.job.app = "GeMM";
  out.job.time = policy == "max-freq" ? 100s : 125s;
  out.job.work = 100;
  out.job.energy = Joules(policy == "max-freq" ? 20e3 : 10e3);
  return out;
}

std::vector<StageResult> results_of(const Plan& plan) {
  std::vector<StoredJob> jobs;
  for (const StageResult& stage : figures(plan, {}))
    for (int i = 0; i < 3; ++i)
      for (const char* policy : {"max-freq", "geepafs"}) jobs.push_back(job(stage, policy, i));
  return figures(plan, jobs);
}

TEST(LabText, APolicyHasItsFiguresAndItsPromise) {
  const Plan plan = plan_of();
  const std::string text = lab_text(plan, results_of(plan), {.sessions = plan.session_count()});
  for (const char* part : {"x: ", "V100-SXM2", "geepafs", "+100.0 %", "20.0 % GeMM",
                           "broken: 3 of 3 jobs, 1 of 1 apps", "oracle", "two clocks"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "Not whole"));
}

TEST(LabText, ResultsThatAreNotWholeAreSaidToBeSo) {
  const Plan plan = plan_of();
  auto stages = figures(plan, {});
  const std::string text = lab_text(plan, stages, {.sessions = 2});
  EXPECT_TRUE(has(text, "Not whole: 2 of 6 sessions have run."));
  EXPECT_TRUE(has(text, "not run"));
  EXPECT_TRUE(has(lab_text(plan, stages, {.apps = true, .sessions = 6}), "not run"));
}

TEST(LabText, FailedJobsAreNamedWithTheirReason) {
  const Plan plan = plan_of();
  const StageResult stage = figures(plan, {}).front();
  std::vector<StoredJob> jobs{job(stage, "max-freq", 0), job(stage, "geepafs", 0)};
  jobs[1].job.error = "exit code 1";
  const std::string text = lab_text(plan, figures(plan, jobs), {.sessions = 6});
  EXPECT_TRUE(has(text, "every job failed"));
  EXPECT_TRUE(has(text, "GeMM under geepafs: 1 failed: exit code 1"));
}

TEST(LabText, AGridHasARowAndAColumnForEachValue) {
  const Plan plan = plan_of("[stress]\nidle_s = [5, 50]\nwork_s = [30, 60]\n");
  ASSERT_EQ(plan.stages.size(), 4u);
  const std::string text = grids_text(plan, results_of(plan));
  for (const char* part : {"geepafs: gain of efficiency", "worst application's loss",
                           "jobs with a broken promise", "↓", "→", "100.0 %"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "not run"));
  EXPECT_TRUE(has(grids_text(plan, figures(plan, {})), "not run"));
}

TEST(LabJson, HasWhatTheTextHas) {
  const Plan plan = plan_of();
  const Json json = lab_json(plan, results_of(plan), {}, {.version = "1", .sessions = 5});
  EXPECT_EQ(json["sessions"], 6);
  EXPECT_EQ(json["sessions_run"], 5);
  EXPECT_EQ(json["baseline"], "max-freq");
  const Json& policy = json["stages"][0]["policies"][1];
  EXPECT_EQ(policy["policy"], "geepafs");
  EXPECT_DOUBLE_EQ(policy["loss_ratio"]["mean"].get<double>(), 0.2);
  EXPECT_DOUBLE_EQ(policy["broken_ratio"].get<double>(), 1);
  EXPECT_EQ(policy["apps"][0]["app"], "GeMM");
  EXPECT_FALSE(policy["apps"][0].contains("error"));
  EXPECT_TRUE(json["stages"][0]["oracle"].contains("worst_app"));
}

// What has not run has no figures, in place of zeros.
TEST(LabJson, WhatHasNotRunHasNoFigures) {
  const Plan plan = plan_of();
  const Json json = lab_json(plan, figures(plan, {}), {}, {.version = "1", .sessions = 0});
  const Json& policy = json["stages"][0]["policies"][1];
  EXPECT_EQ(policy["jobs"], 0);
  EXPECT_FALSE(policy.contains("loss_ratio") || policy.contains("apps"));
}

TEST(RanText, SaysWhatWasThereAndWhatFailed) {
  RunOutcome ran{.ran = 2, .already_there = 4, .all = 6, .failed_jobs = 3};
  ran.simulated = 51h;
  ran.elapsed = 32s;
  EXPECT_EQ(ran_text(ran, "a.lab"),
            "6 sessions, 4 of them there already; 51 h of GPU time in 32.0 s; 3 jobs failed. "
            "Results: a.lab\n");
  EXPECT_EQ(ran_text({.already_there = 6, .all = 6}, "a.lab"),
            "6 sessions, 6 of them there already. Results: a.lab\n");
}

}  // namespace
}  // namespace derate::cli
