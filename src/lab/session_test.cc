#include "lab/session.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "govern/envelope_rule.h"
#include "lab/hindsight.h"
#include "lab/mixes.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

const SimChip& v100() {
  const auto chip = find_sim_chip("V100-SXM2");
  CHECK(chip.ok());
  return **chip;
}

PolicyChoice policy(const std::string& name) {
  const auto info = find_policy(name);
  CHECK(info.ok());
  const auto params = policy_params(**info, {});
  CHECK(params.ok());
  return {*info, *params, name};
}

JobRecord only_job(const Workload& workload, const std::string& policy_name) {
  SessionSpec spec;
  spec.chip = &v100();
  spec.policy = policy(policy_name);
  spec.jobs = {{&workload}};
  spec.work = 60s;
  spec.warm_up = 0s;
  const auto record = run_session(spec);
  CHECK(record.ok());
  CHECK(record->jobs.size() == 1);
  return record->jobs.front();
}

// Eight GPUs do a round of 0.5 s and 25 ms together; energy is that of all, the work one's.
TEST(Session, AJobOnEightGpusRunsInStep) {
  const auto eight = make_mix("synchronous", v100());
  ASSERT_TRUE(eight.ok());
  ASSERT_EQ(eight->gpus, 8);
  Workload one = *eight;
  one.gpus = 1;
  const JobRecord together = only_job(*eight, "max-freq"), alone = only_job(one, "max-freq");
  ASSERT_EQ(together.error, "");
  EXPECT_NEAR(together.work, 60, 1e-6);
  EXPECT_NEAR(seconds(together.time), 63, 0.5);
  EXPECT_NEAR(together.energy / alone.energy, 8, 0.05);
  EXPECT_NEAR(*together.sensed_energy / together.energy, 1, 0.02);
}

// What the work says of itself is what it has done, and nobody speaks between jobs.
TEST(Session, WorkThatSaysHowFarItIs) {
  const auto gemm = find_workload(v100(), "GeMM");
  ASSERT_TRUE(gemm.ok());
  static std::vector<WorkStatus> heard;
  heard.clear();
  struct Listener final : Policy {
    Decision decide(const Estimate& estimate, const Envelope&) override {
      heard.push_back(estimate.work);
      return Decision::hold({"listening", {}});
    }
  };
  PolicyInfo info = **find_policy("max-freq");
  info.create = [](const PolicySetup&) -> Result<std::unique_ptr<Policy>> {
    return std::make_unique<Listener>();
  };
  SessionSpec spec;
  spec.chip = &v100();
  spec.policy = {&info, *policy_params(info, {}), "listener"};
  spec.jobs = {{&*gemm}};
  spec.work = 10s;
  spec.warm_up = 0s;
  spec.heartbeat_every = 1s;
  ASSERT_TRUE(run_session(spec).ok());
  ASSERT_GT(heard.size(), 100u);
  EXPECT_FALSE(heard.front().progress);
  std::vector<Progress> beats;
  for (const WorkStatus& work : heard)
    if (work.progress && (beats.empty() || work.progress != beats.back()))
      beats.push_back(*work.progress);
  ASSERT_GE(beats.size(), 10u);
  for (std::size_t i = 1; i < beats.size(); ++i) {
    EXPECT_NEAR(seconds(beats[i].time - beats[i - 1].time), 1, 0.2);
    // No clock is asked for: the GPU's own is the highest.
    EXPECT_NEAR(beats[i].done - beats[i - 1].done, seconds(beats[i].time - beats[i - 1].time), .05);
  }
}

// A second run of the jobs begins with a new policy, which has what the first one kept and nothing
// else; only it is recorded. Without one nothing is kept.
TEST(Session, ASecondRunRecallsWhatTheFirstKept) {
  const auto gemm = find_workload(v100(), "GeMM");
  ASSERT_TRUE(gemm.ok());
  static std::vector<ModelCache*> given;
  static std::vector<std::size_t> recalled;
  given.clear();
  struct Learner final : Policy {
    explicit Learner(ModelCache* cache) : models(cache) {
      if (models != nullptr) recalled.push_back(models->recall("V100-SXM2").size());
    }
    Decision decide(const Estimate& estimate, const Envelope&) override {
      busy = busy || *estimate.gpu_utilisation > Fraction(0);
      if (busy && *estimate.gpu_utilisation <= Fraction(0) && models != nullptr && id == 0)
        id = models->keep({.chip = "V100-SXM2"});
      return Decision::hold({"learning", {}});
    }
    ModelCache* models;
    bool busy = false;
    std::int64_t id = 0;
  };
  PolicyInfo info = **find_policy("max-freq");
  info.create = [](const PolicySetup& setup) -> Result<std::unique_ptr<Policy>> {
    given.push_back(setup.models);
    return std::make_unique<Learner>(setup.models);
  };
  SessionSpec spec;
  spec.chip = &v100();
  spec.policy = {&info, *policy_params(info, {}), "learner", 1};
  spec.jobs = {{&*gemm}};
  spec.work = 10s;
  spec.warm_up = 0s;
  ASSERT_TRUE(run_session(spec).ok());
  EXPECT_EQ(given, std::vector<ModelCache*>{nullptr});
  spec.policy.run = 3;
  const auto record = run_session(spec);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->jobs.size(), 1u);
  EXPECT_EQ(recalled, (std::vector<std::size_t>{0, 1, 2}));
}

// Each GPU is governed by itself and all wait for the slowest: a policy that is unsure loses more.
TEST(Session, TheSlowestOfEightSetsThePace) {
  const auto eight = make_mix("synchronous", v100());
  ASSERT_TRUE(eight.ok());
  Workload one = *eight;
  one.gpus = 1;
  const auto loss = [](const Workload& workload) {
    const JobRecord full = only_job(workload, "max-freq"), job = only_job(workload, "geepafs");
    return 1 - seconds(full.time) / seconds(job.time);
  };
  EXPECT_GT(loss(*eight), loss(one) + 0.005);
}

// Governed as one unit it loses what one GPU does, though one of them is slower: all of them are
// against the same under the highest clock.
TEST(Session, GpusInStepLoseNoMoreThanOne) {
  const auto loss = [](int gpus, double slow, bool in_step) {
    Workload workload = *find_workload(v100(), "GeMM");
    spread(workload, gpus);
    SessionSpec spec{.chip = &v100(), .jobs = {{&workload}}, .work = 60s, .warm_up = 0s};
    spec.in_step = in_step;
    spec.slow_gpu = slow;
    double time[2] = {};
    for (const bool full : {true, false}) {
      spec.policy = policy(full ? "max-freq" : "assure");
      const auto record = run_session(spec);
      CHECK(record.ok());
      time[full] = seconds(record->jobs.front().time);
    }
    return 1 - time[true] / time[false];
  };
  const double one = loss(1, 0, false);
  EXPECT_LT(loss(8, 0.05, true), one + 0.01);
  EXPECT_LT(loss(8, 0.05, true), 0.1);
}

// For the first 5 s of each job the clock is 0.75 of the highest, whoever locks; both policies then
// have what they request, and are compared with the tool at work.
TEST(Session, AnotherToolHoldsAClockAtTheBeginOfEachJob) {
  const Workload work = *find_workload(v100(), "GeMM");
  SessionSpec spec{.chip = &v100(), .jobs = {{&work}, {&work}}, .work = 20s, .warm_up = 0s};
  spec.disturbance.held.lasts = 5s;
  const auto held = std::lower_bound(v100().sm_clocks.begin(), v100().sm_clocks.end(),
                                     v100().sm_clocks.back() * 0.75);
  const double slower = work.performance(static_cast<std::size_t>(held - v100().sm_clocks.begin()));
  for (const std::string name : {"max-freq", "efficient-fix"}) {
    spec.policy = policy(name);
    const auto record = run_session(spec);
    ASSERT_TRUE(record.ok());
    for (const JobRecord& job : record->jobs) {
      for (const Tick& tick : job.ticks) {
        if (tick.time_s > 0.5 && tick.time_s < 4.9) {
          EXPECT_EQ(tick.clock_mhz, held->value());
        }
        if (tick.time_s < 5.5) continue;
        EXPECT_NE(tick.clock_mhz, held->value());
        if (tick.asked_mhz) {
          EXPECT_EQ(tick.clock_mhz, *tick.asked_mhz);
        }
      }
      if (name == "max-freq") {
        EXPECT_NEAR(seconds(job.time), 20 + 5 * (1 - slower), 0.1);
      }
    }
  }
}

// A constant clock that runs is the constant clock known beforehand, leakage included.
TEST(Session, AConstantClockIsWhatHindsightSaysOfIt) {
  const auto workload = find_workload(v100(), "FFT");
  ASSERT_TRUE(workload.ok());
  const JobRecord full = only_job(*workload, "max-freq"),
                  low = only_job(*workload, "efficient-fix");
  const auto envelope = make_envelope(sim_capability(v100(), 0));
  ASSERT_TRUE(envelope.ok());
  const FixedClock known = fixed_clocks(*workload, {}, v100(), *envelope).front();
  EXPECT_NEAR(1 - seconds(full.time) / seconds(low.time), known.outcome.loss, 0.003);
  EXPECT_NEAR(full.energy / low.energy - 1, known.outcome.gain, 0.02);
}

// Work that ends with a burst ends there, not after the gap behind it.
TEST(Session, NothingIsLeftOverOfRoundWork) {
  const auto bursts = make_mix("bursty-inference", v100());
  ASSERT_TRUE(bursts.ok());
  EXPECT_NEAR(seconds(only_job(*bursts, "max-freq").time), 60 + 29 * 3, 0.5);
}

}  // namespace
}  // namespace derate
