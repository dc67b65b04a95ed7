#include "lab/run_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/test_folder.h"
#include "lab/figures.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

class RunPlanTest : public testing::Test {
 protected:
  LabStore store(const char* name) const {
    auto store = LabStore::create(folder_.file(name));
    CHECK(store.ok());
    return *std::move(store);
  }
  static Plan plan(const std::string& stress = "") {
    const auto e = parse_experiment(
        "[experiment]\nrepetitions = 2\n[gpus]\nchips = [\"V100-SXM2\"]\n[workloads]\n"
        "fitted = [\"GeMM\", \"BWtest\"]\nmixes = [\"training\"]\n[jobs]\nwork_s = 40\nidle_s = 5\n"
        "[[policy]]\nname = \"geepafs\"\n" +
            stress,
        "x.toml");
    CHECK(e.ok());
    auto made = make_plan(*e, "/nowhere");
    CHECK(made.ok());
    return *std::move(made);
  }
  static double loss(const Plan& plan, const LabStore& store) {
    return figures(plan, *store.jobs())[0].policies[1].loss.mean;
  }
  const Folder folder_;
  SystemClock clock_;
};

TEST_F(RunPlanTest, ThreadsDoNotMatter) {
  const Plan plan = this->plan();
  LabStore one = store("one"), three = store("three");
  const auto ran = run_plan(plan, in_virtual_time(plan), one, clock_, 1);
  ASSERT_TRUE(ran.ok());
  EXPECT_EQ(ran->ran, 4u);
  EXPECT_TRUE(ran->whole());
  EXPECT_EQ(ran->failed_jobs, 0u);
  ASSERT_TRUE(run_plan(plan, in_virtual_time(plan), three, clock_, 3).ok());
  EXPECT_EQ(loss(plan, one), loss(plan, three));
  EXPECT_GT(loss(plan, one), 0);
  EXPECT_EQ(one.jobs()->size(), 12u);
}

TEST_F(RunPlanTest, GoesOnWhereItStopped) {
  const Plan plan = this->plan();
  LabStore whole = store("whole"), parts = store("parts");
  ASSERT_TRUE(run_plan(plan, in_virtual_time(plan), whole, clock_, 1).ok());
  bool any = false;
  const auto first = run_plan(plan, in_virtual_time(plan), parts, clock_, 1,
                              {.progress = [&](std::size_t done, std::size_t) { any = done > 0; },
                               .stop = [&] { return any; }});
  ASSERT_TRUE(first.ok());
  EXPECT_GT(first->ran, 0u);
  const auto second = run_plan(plan, in_virtual_time(plan), parts, clock_);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->already_there, first->ran);
  EXPECT_TRUE(second->whole());
  EXPECT_EQ(loss(plan, whole), loss(plan, parts));
  EXPECT_EQ(run_plan(plan, in_virtual_time(plan), parts, clock_)->ran, 0u);
}

TEST_F(RunPlanTest, WhatWasStoredAddsUp) {
  const Plan plan = this->plan("[stress]\ntenants = 1\noutsider_every_s = 10\ndrift_kelvin = 30\n");
  LabStore store = this->store("a");
  ASSERT_TRUE(run_plan(plan, in_virtual_time(plan), store, clock_).ok());
  const auto jobs = store.jobs();
  ASSERT_TRUE(jobs.ok() && !jobs->empty());
  for (const StoredJob& listed : *jobs) {
    const auto one = store.job(listed.id);
    ASSERT_TRUE(one.ok());
    const JobRecord& job = one->job;
    EXPECT_EQ(job.error, "");
    EXPECT_NEAR(job.work, 40, 0.1);
    EXPECT_GE(seconds(job.time), 75);  // half of the GPU, but for the gaps of `training`
    ASSERT_FALSE(job.ticks.empty() || job.remarks.empty());
    double joules = 0;
    for (std::size_t i = 1; i < job.ticks.size(); ++i)
      joules += job.ticks[i].power_w * (job.ticks[i].time_s - job.ticks[i - 1].time_s);
    EXPECT_NEAR(joules / job.energy.value(), 1, 0.05) << job.app;
    ASSERT_TRUE(job.sensed_energy);
    EXPECT_NEAR(*job.sensed_energy / job.energy, 1, 0.05);
  }
}

}  // namespace
}  // namespace derate
