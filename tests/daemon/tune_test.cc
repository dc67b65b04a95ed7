// GPUs tuned for a job by the worker, on simulated GPUs and virtual time, down to the journal.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "house.h"
#include "tune/knob_settings.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// A job that says how far it is once a second, as `derate sim job --beat` does.
struct TunedHouse : House {
  explicit TunedHouse(int gpus, const char* chip, const char* app) : House(gpus, chip) {
    for (int i = 0; i < gpus; ++i) work(i, app);
    start();
    run(2s);
  }
  TuningPlan plan(int gpus = 1) const {
    TuningPlan out;
    for (int i = 0; i < gpus; ++i)
      out.gpus.push_back(sim_capability(sims[static_cast<std::size_t>(i)]->chip(), i).id.uuid);
    return out;
  }
  void run_job(Duration time) {
    for (const Instant end = clock.now() + time; clock.now() < end;) {
      if (clock.now() >= next_report) {
        (void)worker->tell_work("job", {1, sim(0).work_done(), clock.now()}).ok();
        next_report = clock.now() + 1s;
      }
      (void)round();
    }
  }
  bool run_until_tuned(Duration longest) {
    for (const Instant end = clock.now() + longest; clock.now() < end; run_job(100ms))
      if (worker->tuned("job")->tuner().stage() == RunTuner::Stage::holding) {
        run_job(1s);
        return true;
      }
    return false;
  }
  Instant next_report{};
};

// What the work truly does at a setting, over 20 s when the GPU is warm.
KnobReading truth_at(const SimChip& chip, const char* app, Knob knob, double setting) {
  SimGpu gpu(chip, SimOptions{.seed = 99});
  if (knob == Knob::power_limit) gpu.set_power_limit(Watts(setting));
  if (knob == Knob::clock) gpu.lock(Megahertz(setting), Megahertz(setting));
  gpu.start(*find_workload(chip, app), Duration::zero());
  gpu.advance_to(Instant(20s));
  const double work = gpu.work_done();
  const Joules energy = gpu.energy();
  gpu.advance_to(Instant(40s));
  return {setting, (gpu.work_done() - work) / 20, (gpu.energy() - energy) / 20s};
}

// How much dearer the setting is than the best, as a share.
double excess(const RunTuner& tuner, const SimChip& chip, const char* app) {
  const auto& options = tuner.options();
  std::vector<KnobReading> all;
  for (const double each : options.search.settings)
    all.push_back(truth_at(chip, app, options.knob, each));
  for (KnobReading& each : all)  // below the guard nothing is to be had
    if (each.rate * options.search.guard < all.back().rate) each.power = Watts(1e6);
  const auto& [settings, selector, max_power] =
      std::tie(options.search.settings, options.search.selector, options.search.max_power);
  const double best = price(selector, max_power, all[best_reading(selector, max_power, all)]);
  const auto at = std::lower_bound(settings.begin(), settings.end(), tuner.best()->setting);
  return price(selector, max_power, all[static_cast<std::size_t>(at - settings.begin())]) / best -
         1;
}

TEST(TunedWorker, FindsTheLimitOfAJobAndGivesItBack) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->take_for_tuning("job", house.plan()).ok());
  ASSERT_TRUE(house.run_until_tuned(3min));
  const RunTuner& tuner = house.worker->tuned("job")->tuner();
  EXPECT_LT(house.sim(0).power_limit(), 300_W);
  EXPECT_EQ(house.sim(0).power_limit(), Watts(tuner.best()->setting));
  EXPECT_LE(excess(tuner, house.sim(0).chip(), "GeMM"), RunTuner::kTie);
  ASSERT_EQ(house.left().size(), 1u);
  EXPECT_TRUE(house.left()[0].power_written);
  const auto state = parse_json(*read_file(house.folder + "/run/state.json"));
  EXPECT_EQ(state["gpus"][0]["policy"], "tune");
  EXPECT_TRUE(house.worker->give_back_tuned("job").ok());
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  EXPECT_TRUE(house.left().empty());
  EXPECT_EQ(house.worker->tuned("job"), nullptr);
  EXPECT_TRUE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
}

TEST(TunedWorker, AnotherLimitThanTheFactorysIsTheHighestAndComesBack) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  house.sim(0).set_power_limit(230_W);
  ASSERT_TRUE(house.worker->take_for_tuning("job", house.plan()).ok());
  EXPECT_EQ(house.worker->tuned("job")->tuner().options().search.settings.back(), 230);
  ASSERT_TRUE(house.run_until_tuned(3min));
  EXPECT_LT(house.sim(0).power_limit(), 230_W);
  EXPECT_TRUE(house.worker->give_back_tuned("job").ok());
  EXPECT_EQ(house.sim(0).power_limit(), 230_W);
}

TEST(TunedWorker, TunesAClockToo) {
  TunedHouse house(1, "H200", "gemm_bf16");
  TuningPlan plan = house.plan();
  plan.knob = Knob::clock;
  plan.selector.kind = Selector::Kind::energy;
  ASSERT_TRUE(house.worker->take_for_tuning("job", plan).ok());
  ASSERT_TRUE(house.run_until_tuned(5min));
  const RunTuner& tuner = house.worker->tuned("job")->tuner();
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_LE(tuner.readings().size(), 12u);
  EXPECT_LE(excess(tuner, house.sim(0).chip(), "gemm_bf16"), 0.02);
  EXPECT_TRUE(house.worker->give_back_tuned("job").ok());
  EXPECT_FALSE(house.sim(0).locked());
}

// Both of its GPUs have the limit, and their joules are counted together.
TEST(TunedWorker, AJobOnSeveralGpusHasOneLimit) {
  TunedHouse house(3, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->take_for_tuning("job", house.plan(2)).ok());
  ASSERT_TRUE(house.run_until_tuned(3min));
  const RunTuner& tuner = house.worker->tuned("job")->tuner();
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
  ASSERT_TRUE(house.worker->take_for_tuning("job", house.plan()).ok());
  // The limit that was found is the highest, not the one that the policy had set.
  EXPECT_EQ(house.worker->tuned("job")->tuner().options().search.settings.back(), 300);
  house.run(1s);
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  EXPECT_EQ(ask({{"command", "policy-set"}, {"policy", "max-freq"}, {"gpus", "0"}})["ok"], false);
  ASSERT_TRUE(house.worker->give_back_tuned("job").ok());
  house.run(1s);
  EXPECT_EQ(house.sim(0).power_limit(), 200_W);
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
}

TEST(TunedWorker, AnOperatorsReleaseEndsIt) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->take_for_tuning("job", house.plan()).ok());
  ASSERT_TRUE(house.run_until_tuned(3min));
  EXPECT_EQ(parse_json(house.ask(R"({"command":"release"})"))["ok"], true);
  EXPECT_EQ(house.worker->tuned("job"), nullptr);
  EXPECT_EQ(house.sim(0).power_limit(), 300_W);
  EXPECT_EQ(house.worker->give_back_tuned("job").error().code, Errc::not_found);
}

TEST(TunedWorker, RefusesWhatItCannotTakeAndLeavesItAsItWas) {
  TunedHouse house(2, "V100-SXM2", "GeMM");
  TuningPlan plan = house.plan(2);
  Worker& worker = *house.worker;
  auto other = take_lease(house.folder + "/run", House::uuid(1), "derate run, pid 9");
  EXPECT_EQ(worker.take_for_tuning("job", plan).error().code, Errc::busy);
  EXPECT_EQ(worker.tuned("job"), nullptr);
  EXPECT_TRUE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
  *other = UniqueFd();
  plan.highest = 900_W;
  EXPECT_EQ(worker.take_for_tuning("job", plan).error().code, Errc::invalid_argument);
  plan.highest.reset();
  plan.gpus.push_back("GPU-gone");
  EXPECT_EQ(worker.take_for_tuning("job", plan).error().code, Errc::not_found);
  plan.gpus.pop_back();
  ASSERT_TRUE(worker.take_for_tuning("job", plan).ok());
  EXPECT_EQ(worker.take_for_tuning("job", plan).error().code, Errc::invalid_argument);
  EXPECT_EQ(worker.take_for_tuning("two", plan).error().code, Errc::busy);
  EXPECT_EQ(worker.tell_work("two", {}).error().code, Errc::not_found);
}

TEST(TunedWorker, GoesOnAfterAPauseAndAfterALostGpu) {
  TunedHouse house(1, "V100-SXM2", "GeMM");
  ASSERT_TRUE(house.worker->take_for_tuning("job", house.plan()).ok());
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
  ASSERT_TRUE(house.worker->take_for_tuning("job", house.plan()).ok());
  for (int i = 0; i < 120; ++i) {
    house.beat(1000, 77, "done=" + std::to_string(house.sim(0).work_done()));
    house.run(1s);
  }
  EXPECT_EQ(house.worker->tuned("job")->tuner().stage(), RunTuner::Stage::holding);
  EXPECT_LT(house.sim(0).power_limit(), 300_W);
}

}  // namespace
}  // namespace derate::cli
