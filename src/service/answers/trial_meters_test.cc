#include "service/answers/trial_meters.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <set>

namespace derate {
namespace {

using namespace std::chrono_literals;

// Tunes nothing; remembers which trials it has.
struct FakeTunedGpus final : TunedGpus {
  std::set<std::string> tuned;
  std::vector<double> told;
  bool refuses = false;
  Result<void> take_for_tuning(const std::string& name, const TuningPlan&) override {
    if (refuses) return Error{Errc::busy, "governed by another"};
    tuned.insert(name);
    return {};
  }
  Result<void> give_back_tuned(const std::string& name) override {
    if (tuned.erase(name) == 0) return Error{Errc::not_found, name};
    return {};
  }
  Result<void> report_work(const std::string&, const Progress& progress) override {
    told.push_back(progress.done);
    return {};
  }
  std::optional<TuningState> tuning(const std::string& name) const override {
    if (!tuned.contains(name)) return std::nullopt;
    return TuningState{
        .what = "150 W", .profiling_cost = 7, .unit_cost = 2, .highest_unit_cost = 3};
  }
};

// GPUs that draw 100 W each, and a user whose processes are on those in `busy`.
struct Bench {
  static constexpr std::uint32_t kUser = 1234;
  FakeClock clock;
  CommandRouter clients;
  EnergyService energy{clock, clients};
  TrialRegistry book{1h};
  TrialWriter writer{book, clock, {}};
  FakeTunedGpus tuned;
  std::set<std::string> busy;
  std::vector<std::string> logged;
  std::vector<TuneGpu> gpus;
  TrialMeters meters{clock, energy, writer, options()};

  explicit Bench(int count = 1) {
    std::vector<GpuId> ids;
    for (int i = 0; i < count; ++i) {
      ids.push_back(
          {.index = i, .uuid = "GPU-" + std::to_string(i), .pci_bus_id = {}, .name = "V100"});
      gpus.push_back({ids.back(), "V100", Watts(300)});
      busy.insert(ids.back().uuid);
    }
    energy.here(ids);
    sample();
  }
  TrialMeters::Options options() {
    return {.log = Log([this](const LogRecord& record) { logged.push_back(record.text); }),
            .works_on = [this](const std::string& gpu,
                               std::uint32_t uid) { return uid == kUser && busy.contains(gpu); },
            .gpus = &tuned};
  }
  void sample() {
    for (const TuneGpu& gpu : gpus) {
      Sample sample;
      sample.time = clock.now();
      sample.power_usage = Watts(100);
      energy.take(gpu.id.uuid, sample);
    }
  }
  void work(int for_s) {
    for (int i = 0; i < for_s; ++i) {
      clock.advance(1s);
      sample();
    }
  }
  TrialEntry trial() const {
    TrialEntry out;
    out.trial.id = 1;
    out.uid = kUser;
    out.gpus = uuids_of(gpus);
    return out;
  }
  void begin(const TrialEntry& trial, double eta = 0.5) {
    JobSpec spec;
    spec.eta = eta;
    TrialMeter meter = meters.meter_for(trial.uid, gpus, spec);
    meter.max_power = *max_power_of(gpus, {.eta = eta});
    meters.take_knob(trial, gpus, meter);
    meters.begin(trial, std::move(meter));
  }
};

RC_GTEST_PROP(TrialMeters, CostsWeighEnergyWithTime, ()) {
  const int count = *rc::gen::inRange(1, 5), time = *rc::gen::inRange(1, 200);
  const double eta = *rc::gen::inRange(0, 11) / 10.0;
  Bench bench(count);
  bench.begin(bench.trial(), eta);
  bench.work(time);
  const TrialPaid paid = bench.meters.paid(bench.trial(), {});
  const double joules = 100.0 * count * time, most = 300.0 * count * time;
  RC_ASSERT(std::abs(paid.energy - joules) < 1e-6);
  RC_ASSERT(std::abs(paid.time_s - time) < 1e-9);
  RC_ASSERT(std::abs(paid.cost - (eta * joules + (1 - eta) * most)) < 1e-6);
}

TEST(TrialMeters, WhatComesBeforeTheFirstReportIsNoEpochs) {
  Bench bench;
  bench.begin(bench.trial(), 1);
  bench.work(50);  // 5000 J, to load the data
  EXPECT_DOUBLE_EQ(*bench.meters.paid(bench.trial(), 1).epoch_cost, 5000);
  bench.work(20);
  EXPECT_DOUBLE_EQ(*bench.meters.paid(bench.trial(), 3).epoch_cost, 1000);
}

TEST(TrialMeters, ARestartIsAddedToWhatThereWas) {
  Bench bench;
  TrialEntry trial = bench.trial();
  trial.trial.cost = 10;
  trial.energy = 20;
  trial.time_s = 30;
  JobSpec spec;
  spec.eta = 1;
  bench.meters.take_up(trial, bench.gpus, spec);
  bench.work(10);
  const TrialPaid paid = bench.meters.paid(trial, {});
  EXPECT_NEAR(paid.cost, 1010, 1e-6);
  EXPECT_NEAR(paid.energy, 1020, 1e-6);
  EXPECT_NEAR(paid.time_s, 40, 1e-9);
}

TEST(TrialMeters, OfATunedRunTheKnobKnowsTheCosts) {
  Bench bench;
  bench.meters.set_for_everyone(true);
  bench.begin(bench.trial());
  EXPECT_EQ(bench.meters.knob_text(1), "150 W");
  bench.meters.set_work_done(1, 100);
  const TrialPaid paid = bench.meters.paid(bench.trial(), 4);  // 25 of its units an epoch
  EXPECT_EQ(paid.epoch_cost, 50);
  EXPECT_EQ(paid.default_epoch_cost, 75);
  EXPECT_EQ(paid.profiling_cost, 7);
  bench.meters.report_work(1, WorkUnit::steps, 100);
  EXPECT_EQ(bench.tuned.told, std::vector<double>{100});
  bench.meters.end(1);
  EXPECT_TRUE(bench.tuned.tuned.empty());
  EXPECT_FALSE(bench.meters.is_measured(1));
  EXPECT_EQ(bench.energy.windows().size(), 0u);
}

TEST(TrialMeters, AKnobThatIsNotTurnedSaysWhy) {
  const auto why = [](auto change) {
    Bench bench;
    bench.meters.set_for_everyone(true);
    change(bench);
    bench.begin(bench.trial());
    bench.meters.report_work(1, WorkUnit::steps, 100);
    EXPECT_TRUE(bench.tuned.told.empty());
    return bench.meters.knob_text(1);
  };
  EXPECT_EQ(why([](Bench& bench) { bench.meters.set_for_everyone(false); }),
            "left alone: user 1234 may have none turned ([tune] users = \"root\" in the "
            "configuration)");
  EXPECT_EQ(why([](Bench& bench) { bench.busy.clear(); }),
            "left alone: until user 1234 has a process on each of the GPUs, for 60 s");
  EXPECT_EQ(why([](Bench& bench) { bench.tuned.refuses = true; }),
            "left alone: governed by another");
}

// The knob is taken when the user comes, and only a user who stays away abandons the trial.
TEST(TrialMeters, ATrialIsAbandonedByAUserWhoStaysAway) {
  Bench bench;
  bench.meters.set_for_everyone(true);
  bench.busy.clear();
  bench.begin(bench.trial());
  EXPECT_TRUE(bench.meters.is_unused(1));
  bench.clock.advance(59s);
  EXPECT_FALSE(bench.meters.is_abandoned(bench.trial(), &bench.gpus));
  bench.busy = {"GPU-0"};
  EXPECT_FALSE(bench.meters.is_abandoned(bench.trial(), &bench.gpus));
  EXPECT_FALSE(bench.meters.is_unused(1));
  EXPECT_TRUE(bench.tuned.tuned.contains("trial 1"));
  bench.busy.clear();
  bench.clock.advance(1h);
  EXPECT_FALSE(bench.meters.is_abandoned(bench.trial(), nullptr));  // its GPUs are not open
  bench.clock.advance(60s);
  EXPECT_TRUE(bench.meters.is_abandoned(bench.trial(), &bench.gpus));
}

TEST(TrialMeters, WhenTheGpusAreClosedTheTrialIsMeasuredOn) {
  Bench bench;
  bench.meters.set_for_everyone(true);
  bench.begin(bench.trial());
  bench.meters.release_gpus();
  EXPECT_TRUE(bench.tuned.tuned.empty());
  EXPECT_EQ(bench.meters.knob_text(1), "left alone: the GPUs were given back");
  bench.work(10);
  EXPECT_NEAR(bench.meters.paid(bench.trial(), {}).energy, 1000, 1e-6);
}

TEST(TrialMeters, AGpuThatIsNotHereIsLogged) {
  Bench bench;
  TrialEntry trial = bench.trial();
  trial.gpus = {"GPU-9"};
  bench.begin(trial);
  EXPECT_EQ(bench.logged, std::vector<std::string>{"trial 1 is not measured"});
}

TEST(TrialGpus, ARequestNamesThemWhereThereAreSeveral) {
  const Bench bench(2);
  EXPECT_EQ(choose_gpus({}, "0").error().code, Errc::busy);
  EXPECT_EQ(choose_gpus(bench.gpus, "").error().code, Errc::invalid_argument);
  EXPECT_EQ(uuids_of(*choose_gpus(bench.gpus, "1")), std::vector<std::string>{"GPU-1"});
  EXPECT_EQ(uuids_of(*choose_gpus(std::span(bench.gpus).first(1), "")),
            std::vector<std::string>{"GPU-0"});
  const std::vector<std::string> absent{"GPU-0", "GPU-9"};
  EXPECT_FALSE(find_gpus(bench.gpus, absent));
}

TEST(TrialGpus, TimeHasAPriceOnlyWhereTheLimitsAreTold) {
  Bench bench(2);
  EXPECT_EQ(*max_power_of(bench.gpus, {.eta = 0.5}), Watts(600));
  bench.gpus[1].highest_limit.reset();
  EXPECT_EQ(max_power_of(bench.gpus, {.eta = 0.5}).error().code, Errc::not_supported);
  EXPECT_EQ(*max_power_of(bench.gpus, {.eta = 1}), Watts(300));
  for (const auto kind :
       {Selector::Kind::energy, Selector::Kind::time, Selector::Kind::max_slowdown})
    EXPECT_TRUE(max_power_of(bench.gpus, {.kind = kind}).ok());
}

}  // namespace
}  // namespace derate
