// GPUs tuned for a job by the worker, on simulated GPUs and virtual time, down to the journal.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "tuned_house.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

TEST(TunedWorker, FindsTheLimitOfAJobAndGivesItBack) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", house.plan()).ok());
  ASSERT_TRUE(house.run_until_tuned(3min));
  const RunTuner& tuner = house.worker->fleet().tuned("job")->tuner();
  EXPECT_LT(house.sim(0).power_limit(), 300_W);
  EXPECT_EQ(house.sim(0).power_limit(), Watts(tuner.best()->setting));
  EXPECT_LE(excess(tuner, house.sim(0).chip(), "GeMM"), RunTuner::kTie);
  ASSERT_EQ(house.left().size(), 1u);
  EXPECT_TRUE(house.left()[0].is_written(kPowerLimit));
  const auto state = parse_json(*read_file(house.folder + "/run/state.json"));
  EXPECT_EQ(state["gpus"][0]["policy"], "tune");
  EXPECT_TRUE(house.worker->fleet().give_back_tuned("job").ok());
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  EXPECT_TRUE(house.left().empty());
  EXPECT_EQ(house.worker->fleet().tuned("job"), nullptr);
  EXPECT_TRUE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
}

TEST(TunedWorker, AnotherLimitThanTheFactorysIsTheHighestAndComesBack) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  house.sim(0).set_power_limit(230_W);
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", house.plan()).ok());
  EXPECT_EQ(house.worker->fleet().tuned("job")->tuner().options().search.settings.back(), 230);
  ASSERT_TRUE(house.run_until_tuned(3min));
  EXPECT_LT(house.sim(0).power_limit(), 230_W);
  EXPECT_TRUE(house.worker->fleet().give_back_tuned("job").ok());
  EXPECT_EQ(house.sim(0).power_limit(), 230_W);
}

TEST(TunedWorker, TunesAClockToo) {
  TunedHouse house(1, "H200", "gemm_bf16");
  TuningPlan plan = house.plan();
  plan.knob = Knob::clock;
  plan.selector.kind = Selector::Kind::energy;
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", plan).ok());
  ASSERT_TRUE(house.run_until_tuned(5min));
  const RunTuner& tuner = house.worker->fleet().tuned("job")->tuner();
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_LE(tuner.readings().size(), 12u);
  EXPECT_LE(excess(tuner, house.sim(0).chip(), "gemm_bf16"), 0.02);
  EXPECT_TRUE(house.worker->fleet().give_back_tuned("job").ok());
  EXPECT_FALSE(house.sim(0).locked());
}

// Both of its GPUs have the limit, and their joules are counted together.
TEST(TunedWorker, AJobOnSeveralGpusHasOneLimit) {
  TunedHouse house(3, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", house.plan(2)).ok());
  ASSERT_TRUE(house.run_until_tuned(3min));
  const RunTuner& tuner = house.worker->fleet().tuned("job")->tuner();
  EXPECT_EQ(house.sim(0).power_limit(), house.sim(1).power_limit());
  EXPECT_LT(house.sim(1).power_limit(), 300_W);
  EXPECT_EQ(house.sim(2).power_limit(), 300_W);
  const KnobReading one =
      truth_at(house.sim(0).chip(), "GeMM", Knob::power_limit, tuner.best()->setting);
  EXPECT_NEAR(tuner.best()->power / one.power, 2, 0.05);
  EXPECT_EQ(tuner.options().search.max_power, 600_W);
}

TEST(TunedWorker, WhatWasWantedThereComesBack) {
  TunedHouse house(2, "V100-SXM2", "GeMM");
  const auto ask = [&](const Json& request) { return parse_json(house.ask(json_text(request))); };
  ask({{"command", "policy-set"}, {"policy", "power-cap"}, {"set", {"watts=200"}}, {"gpus", "0"}});
  house.run(1s);
  ASSERT_EQ(house.sim(0).power_limit(), 200_W);
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", house.plan()).ok());
  // The limit that was found is the highest, not the one that the policy had set.
  EXPECT_EQ(house.worker->fleet().tuned("job")->tuner().options().search.settings.back(), 300);
  house.run(1s);
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  EXPECT_EQ(ask({{"command", "policy-set"}, {"policy", "max-freq"}, {"gpus", "0"}})["ok"], false);
  ASSERT_TRUE(house.worker->fleet().give_back_tuned("job").ok());
  house.run(1s);
  EXPECT_EQ(house.sim(0).power_limit(), 200_W);
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
}

TEST(TunedWorker, AnOperatorsReleaseEndsIt) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", house.plan()).ok());
  ASSERT_TRUE(house.run_until_tuned(3min));
  EXPECT_EQ(parse_json(house.ask(R"({"command":"release"})"))["ok"], true);
  EXPECT_EQ(house.worker->fleet().tuned("job"), nullptr);
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  EXPECT_EQ(house.worker->fleet().give_back_tuned("job").error().code, Errc::not_found);
}

TEST(TunedWorker, RefusesWhatItCannotTakeAndLeavesItAsItWas) {
  TunedHouse house(2, "V100-SXM2", "GeMM");
  TuningPlan plan = house.plan(2);
  Fleet& fleet = house.worker->fleet();
  auto other = take_lease(house.folder + "/run", House::uuid(1), "derate run, pid 9");
  EXPECT_EQ(fleet.take_for_tuning("job", plan).error().code, Errc::busy);
  EXPECT_EQ(fleet.tuned("job"), nullptr);
  EXPECT_TRUE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
  *other = UniqueFd();
  plan.highest = 900_W;
  EXPECT_EQ(fleet.take_for_tuning("job", plan).error().code, Errc::invalid_argument);
  plan.highest.reset();
  plan.gpus.push_back("GPU-gone");
  EXPECT_EQ(fleet.take_for_tuning("job", plan).error().code, Errc::not_found);
  plan.gpus.pop_back();
  ASSERT_TRUE(fleet.take_for_tuning("job", plan).ok());
  EXPECT_EQ(fleet.take_for_tuning("job", plan).error().code, Errc::invalid_argument);
  EXPECT_EQ(fleet.take_for_tuning("two", plan).error().code, Errc::busy);
  EXPECT_EQ(fleet.report_work("two", {}).error().code, Errc::not_found);
}

TEST(TunedWorker, GoesOnAfterAPauseAndAfterALostGpu) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", house.plan()).ok());
  ASSERT_TRUE(house.run_until_tuned(3min));
  const Watts best = house.sim(0).power_limit();
  house.ask(R"({"command":"pause"})");
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  house.run_job(10s);
  house.ask(R"({"command":"resume"})");
  house.run_job(10s);
  EXPECT_EQ(house.sim(0).power_limit(), best);
  house.trouble(0).faults.gpu_lost = true;
  house.run_job(20s);
  house.sim(0).set_power_limit(300_W);  // a reset took it
  house.trouble(0).faults.gpu_lost = false;
  house.run_job(30s);
  EXPECT_EQ(house.sim(0).power_limit(), best);
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  EXPECT_TRUE(house.left().empty());
}

// Without a call: the beats of a process that works there are how far the job is.
TEST(TunedWorker, HearsTheBeatsOfTheJobsProcess) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  house.person(0, 77, 1000);
  ASSERT_TRUE(house.worker->fleet().take_for_tuning("job", house.plan()).ok());
  for (int i = 0; i < 120; ++i) {
    house.beat(1000, 77, "done=" + std::to_string(house.sim(0).work_done()));
    house.run(1s);
  }
  EXPECT_EQ(house.worker->fleet().tuned("job")->tuner().stage(), RunTuner::Stage::holding);
  EXPECT_LT(house.sim(0).power_limit(), 300_W);
}

}  // namespace
}  // namespace derate::cli
