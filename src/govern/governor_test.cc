#include "govern/governor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <deque>
#include <random>

#include "device/sim/sim_device.h"
#include "govern/envelope_rule.h"
#include "govern/test_control.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;
using Kind = Decision::Kind;
using Outcome = Actuation::Outcome;
using Rule = Clamped::Rule;

const SimChip& v100() { return **find_sim_chip("v100"); }

PolicySetup setup_of(const Capability& capability, const Envelope& envelope,
                     const ParamValues& params) {
  return policy_setup(capability, envelope, params);
}

// Whether the policy locks clocks; the others leave them to the GPU.
bool sets_clocks(const PolicyInfo& info) {
  return std::string_view(info.name) != "nv-boost" && std::string_view(info.name) != "power-cap";
}

// Simulated GPUs under one governor.
class Node {
 public:
  explicit Node(int gpus, const char* policy = "geepafs", bool dry_run = false,
                const GovernorOptions& options = {}, std::uint64_t seed = 1) {
    const PolicyInfo& info = **find_policy(policy);
    params = *policy_params(info, {});
    std::vector<GovernedGpu> governed;
    for (int i = 0; i < gpus; ++i) {
      sims.emplace_back(v100(), SimOptions{.seed = seed + static_cast<std::uint64_t>(i)});
      SimDevice& device = devices.emplace_back(sims.back(), clock, i);
      governed.push_back(make(device, info, params));
      if (dry_run) governed.back().control = nullptr;
    }
    tick_every = policy_tick(params);
    governor.emplace(std::move(governed), clock, options);
  }

  static GovernedGpu make(SimDevice& device, const PolicyInfo& info, const ParamValues& params) {
    const Envelope envelope = *make_envelope(device.capability());
    GovernedGpu out{&device, &device, *info.create(setup_of(device.capability(), envelope, params)),
                    info.as_published, envelope};
    out.policy_key = policy_key(info, params);
    return out;
  }
  // The GPU is governed anew, by that policy. Null until the next: the policy itself.
  const Policy* replace(std::size_t gpu, const char* policy, Duration tick = {}) {
    const PolicyInfo& info = **find_policy(policy);
    GovernedGpu fresh = make(devices[gpu], info, *policy_params(info, {}));
    fresh.tick = tick;
    const Policy* out = fresh.policy.get();
    governor->replace(gpu, std::move(fresh));
    return out;
  }

  void work(int gpu, const char* workload) {
    sims[static_cast<std::size_t>(gpu)].start(*find_workload(v100(), workload), Duration::zero());
  }
  void in_step(std::initializer_list<int> which, std::optional<std::uint64_t> group) {
    for (const int gpu : which)
      governor->set_work(static_cast<std::size_t>(gpu), {.step_group = group});
  }
  SimFaults& faults(int gpu) { return devices[static_cast<std::size_t>(gpu)].faults; }
  std::span<const Record> tick() {
    clock.sleep_until(next_);
    next_ += tick_every;
    return governor->tick();
  }
  void run(int ticks) {
    for (int i = 0; i < ticks; ++i) tick();
  }

  FakeClock clock;
  ParamValues params;
  Duration tick_every{};
  std::deque<SimGpu> sims;
  std::deque<SimDevice> devices;
  std::optional<Governor> governor;

 private:
  Instant next_{};
};

TEST(Governor, ARecordSaysWhatHappened) {
  Node node(1, "efficient-fix");
  node.work(0, "GeMM");
  node.run(10);
  const auto records = node.tick();
  ASSERT_EQ(records.size(), 1u);
  const Record& r = records[0];
  EXPECT_EQ(r.time, Instant(2s));
  ASSERT_TRUE(r.sample);
  EXPECT_EQ(r.estimate.freshness, Freshness::fresh);
  EXPECT_EQ(r.estimate.sm_clock, r.sample->sm_clock);
  EXPECT_EQ(r.estimate.requested_clock, 952_MHz);
  EXPECT_EQ(r.estimate.gpu_utilisation, r.sample->gpu_utilisation);
  EXPECT_EQ(r.estimate.power, r.sample->power_usage);
  EXPECT_EQ(r.decision.clock, 952_MHz);
  EXPECT_EQ(r.actuation.outcome, Outcome::nothing);
  EXPECT_EQ(r.actuation.locked, 952_MHz);
}

// Increments, each second: their sum is the policy's own estimate.
TEST(Governor, RecordsHaveWhatHasComeToTheSaving) {
  Node node(1, "assure");
  node.work(0, "BWtest");
  Saving sum;
  int told = 0;
  for (int i = 0; i < 300; ++i)
    for (const Record& record : node.tick())
      if (record.saving) sum += *record.saving, ++told;
  EXPECT_NEAR(told, 60, 2);  // of 60 s
  EXPECT_GT(sum.time, 55s);
  EXPECT_LE(sum.time, 60s);
  EXPECT_GT(energy_saving(sum)->low, 0.1);  // memory-bound work
  EXPECT_LE(performance(sum)->low, 1);
}

TEST(Governor, APolicyWithoutCurvesTellsNoSaving) {
  Node node(1, "geepafs");
  node.work(0, "BWtest");
  for (int i = 0; i < 100; ++i)
    for (const Record& record : node.tick()) EXPECT_FALSE(record.saving);
}

TEST(Governor, TheNodeIsAsBusyAsAllItsGpus) {
  Node node(3);
  node.work(0, "GeMM");
  node.work(2, "XCiT");
  node.run(20);
  const auto records = node.tick();
  Fraction sum{0};
  for (const Record& r : records) sum += *r.sample->gpu_utilisation;
  EXPECT_GT(sum, Fraction(1.5));
  for (const Record& r : records) EXPECT_EQ(r.estimate.node_gpu_utilisation, sum);
  // As published: any busy GPU makes every GPU probe.
  for (int i = 0; i < 65; ++i) node.tick();
  for (const Record& r : node.tick()) EXPECT_EQ(r.decision.kind, Kind::set) << r.gpu;
}

TEST(Governor, ALostGpuHoldsIsReleasedAndDoesNotStopTheOthers) {
  Node node(2, "max-freq");
  node.run(5);
  node.faults(0).gpu_lost = true;
  for (int i = 1; i <= 40; ++i) {
    const auto records = node.tick();
    const Duration age = i * 200ms;
    const bool expired = age > Duration(5s);
    EXPECT_FALSE(records[0].sample);
    EXPECT_NE(records[0].sample_error, "");
    EXPECT_EQ(records[0].clamped.rule, expired ? Rule::expired : Rule::stale) << i;
    EXPECT_EQ(records[0].clamped.decision.kind, expired ? Kind::release : Kind::hold);
    const Outcome tried = age == Duration(5200ms) ? Outcome::failed : Outcome::waiting;
    if (age < Duration(6s)) {
      EXPECT_EQ(records[0].actuation.outcome, expired ? tried : Outcome::nothing) << i;
    }
    EXPECT_TRUE(records[1].sample);
    EXPECT_EQ(records[1].actuation.locked, 1530_MHz);
  }
  node.faults(0).gpu_lost = false;
  const auto records = node.tick();
  EXPECT_TRUE(records[0].sample);
  EXPECT_EQ(records[0].decision.clock, 1530_MHz);
  node.tick();
  EXPECT_TRUE(node.sims[0].locked());
}

// The driver may have lost the lock meanwhile, which is no other tool's doing.
TEST(Governor, SettingsAreWrittenAgainAfterTheMachineWasSuspended) {
  std::vector<double> said;
  GovernorOptions options;
  options.resumed = [&](Duration suspended) { said.push_back(seconds(suspended)); };
  Node node(2, "efficient-fix", false, options);
  node.work(0, "GeMM");
  node.run(10);
  for (SimGpu& sim : node.sims) {
    ASSERT_TRUE(sim.locked());
    sim.unlock();
  }
  node.clock.suspend(1h);
  for (const Record& record : node.tick()) {
    EXPECT_EQ(record.actuation.outcome, Outcome::written);
    EXPECT_EQ(record.actuation.drifts, 0);
  }
  for (const SimGpu& sim : node.sims) EXPECT_TRUE(sim.locked());
  EXPECT_EQ(said, std::vector{3600.0});
  for (const Record& record : node.tick()) EXPECT_EQ(record.actuation.outcome, Outcome::nothing);
  EXPECT_EQ(said.size(), 1u);
}

TEST(Governor, AGpuThatDoesNotAnswerAtFirstIsNotTouched) {
  Node node(1, "max-freq");
  node.faults(0).gpu_lost = true;
  for (int i = 0; i < 40; ++i) EXPECT_EQ(node.tick()[0].actuation.outcome, Outcome::nothing);
}

TEST(Governor, RestoreGoesOnPastAGpuThatFails) {
  Node node(3, "efficient-fix");
  node.run(3);
  node.faults(1).gpu_lost = true;
  const auto restored = node.governor->restore();
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.error().code, Errc::gpu_lost);
  EXPECT_NE(restored.error().message.find(node.devices[1].capability().id.uuid), std::string::npos);
  EXPECT_FALSE(node.sims[0].locked());
  EXPECT_TRUE(node.sims[1].locked());
  EXPECT_FALSE(node.sims[2].locked());
  node.faults(1).gpu_lost = false;
  EXPECT_TRUE(node.governor->restore().ok());
  EXPECT_FALSE(node.sims[1].locked());
}

TEST(Governor, GoingGivesEveryGpuBack) {
  Node node(2, "efficient-fix");
  node.run(3);
  EXPECT_TRUE(node.sims[0].locked() && node.sims[1].locked());
  node.governor.reset();
  EXPECT_FALSE(node.sims[0].locked() || node.sims[1].locked());
}

TEST(Governor, ADryRunWritesNothingOverAWholeRun) {
  for (const PolicyInfo& info : policies()) {
    SCOPED_TRACE(info.name);
    Node node(1, info.name, true);
    node.work(0, "GeMM");
    bool wished = false;
    for (int i = 0; i < 200; ++i) {
      const Record& r = node.tick()[0];
      wished |= r.actuation.outcome == Outcome::shadow;
      EXPECT_TRUE(r.actuation.outcome == Outcome::shadow ||
                  r.actuation.outcome == Outcome::nothing);
      EXPECT_FALSE(node.sims[0].locked());
    }
    EXPECT_TRUE(wished || !sets_clocks(info));
    EXPECT_TRUE(node.governor->restore().ok());
    EXPECT_FALSE(node.sims[0].locked());
  }
}

TEST(Governor, WritesThatAreRefusedAreReportedAndTriedAgain) {
  Node node(1, "efficient-fix");
  node.faults(0).no_permission = true;
  for (int i = 0; i < 5; ++i) {
    const Record& r = node.tick()[0];
    EXPECT_EQ(r.actuation.outcome, i == 0 ? Outcome::failed : Outcome::waiting);
    EXPECT_NE(r.actuation.error, "");
    EXPECT_EQ(r.actuation.locked, std::nullopt);
  }
  node.faults(0).no_permission = false;
  EXPECT_EQ(node.tick()[0].actuation.outcome, Outcome::written);
}

// --- Rules that need time ------------------------------------------------------------------------

// A GPU whose next reading a test makes up.
class ScriptedGpu final : public TelemetrySource {
 public:
  explicit ScriptedGpu(Clock& clock) : clock_(clock), capability_(sim_capability(v100(), 0)) {}
  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan&) override {
    sample.time = clock_.now();
    return sample;
  }
  Result<std::vector<GpuProcess>> processes() override { return std::vector<GpuProcess>{}; }
  std::shared_ptr<const DriverCosts> costs() const override { return cost; }
  std::shared_ptr<DriverCosts> cost;  // null: nothing
  Sample sample;

 private:
  Clock& clock_;
  Capability capability_;
};

// What a policy of our own would do: one wish now and then.
class WishPolicy final : public Policy {
 public:
  explicit WishPolicy(Decision& wish) : wish_(wish) {}
  Decision decide(const Estimate&, const Envelope&) override { return wish_; }

 private:
  Decision& wish_;
};

class RulesTest : public testing::Test {
 protected:
  void start(bool as_published) {
    gpu_.sample.gpu_utilisation = percent(80);
    gpu_.sample.temperature = 50_degC;
    std::vector<GovernedGpu> gpus;
    gpus.push_back({&gpu_, &control_, std::make_unique<WishPolicy>(wish_), as_published,
                    *make_envelope(gpu_.capability())});
    governor_.emplace(std::move(gpus), clock_);
  }
  const Record& tick(Duration after = 200ms) {
    clock_.advance(after);
    return governor_->tick()[0];
  }
  FakeClock clock_;
  TestControl control_;
  ScriptedGpu gpu_{clock_};
  Decision wish_ = Decision::set(1207_MHz, {"wish", {}});
  std::optional<Governor> governor_;
};

// A GPU that is only observed and has no work is read once a second if a reading costs the driver
// time.
TEST_F(RulesTest, AnObservedGpuWithoutWorkIsReadSeldom) {
  gpu_.cost = std::make_shared<DriverCosts>();
  gpu_.cost->add(DriverCall::sensors, std::chrono::microseconds(50));
  std::vector<GovernedGpu> gpus;
  gpus.push_back({&gpu_, nullptr, std::make_unique<WishPolicy>(wish_), false,
                  *make_envelope(gpu_.capability())});
  gpus.back().observed = true;
  gpus.back().tick = 100ms;
  governor_.emplace(std::move(gpus), clock_);
  const auto readings = [&](Fraction busy) {
    gpu_.sample.gpu_utilisation = busy;
    std::size_t out = 0;
    for (int i = 0; i < 200; ++i) {
      clock_.advance(100ms);
      out += governor_->tick().size();
    }
    return out;
  };
  EXPECT_EQ(readings(percent(50)), 200u);
  EXPECT_NEAR(static_cast<double>(readings(percent(0))), 110, 3);  // ten seconds, then each one
  EXPECT_NEAR(static_cast<double>(readings(percent(0))), 20, 2);
  EXPECT_GE(readings(percent(50)), 190u);
}

TEST_F(RulesTest, ParksAfterASecondWithoutAKernelAndWakesAtOnce) {
  start(false);
  EXPECT_EQ(tick().actuation.locked, 1207_MHz);
  wish_ = Decision::hold({"as before", {}});
  gpu_.sample.gpu_utilisation = percent(0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(tick().actuation.locked, 1207_MHz) << i;
  const Record& parked = tick();  // 1 s after the first reading of nothing
  EXPECT_TRUE(parked.estimate.idle);
  EXPECT_EQ(parked.actuation.locked, 952_MHz);
  gpu_.sample.gpu_utilisation = percent(1);
  const Record& woken = tick();
  EXPECT_EQ(woken.clamped.rule, Rule::wake);
  EXPECT_EQ(woken.actuation.locked, 1530_MHz);
}

// A counter that stands still at zero, or rounds down to it.
TEST_F(RulesTest, AGpuWhoseLaunchesGrowIsNotIdle) {
  start(false);
  gpu_.sample.gpu_utilisation = percent(0);
  Progress progress{.source = ProgressSource::launches,
                    .run = 1,
                    .done = 100,
                    .time = clock_.now(),
                    .rate_uncertainty = 0.01};
  for (int i = 0; i < 20; ++i) {
    progress.done += 50;
    progress.time = clock_.now();
    governor_->set_work(0, {.progress = progress});
    EXPECT_FALSE(tick().estimate.idle) << i;
  }
  for (int i = 0; i < 12; ++i) tick();  // they grow no more
  EXPECT_TRUE(tick().estimate.idle);
  // Steps that an application counts may be of its CPU.
  progress.source = ProgressSource::heartbeats;
  for (int i = 0; i < 5; ++i) {
    progress.done += 1;
    progress.time = clock_.now();
    governor_->set_work(0, {.progress = progress});
    EXPECT_TRUE(tick().estimate.idle);
  }
}

TEST_F(RulesTest, AnUnknownUtilisationIsNotIdle) {
  start(false);
  gpu_.sample.gpu_utilisation.reset();
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(tick().estimate.idle);
}

// A utilisation that stands still at 0 while work draws power.
TEST_F(RulesTest, AGpuThatDrawsMoreThanAtRestIsNotIdle) {
  start(false);
  tick();
  wish_ = Decision::hold({"as before", {}});
  gpu_.sample.gpu_utilisation = percent(0);
  gpu_.sample.power_usage = Watts(48);
  for (int i = 0; i < 20; ++i) tick();
  gpu_.sample.power_usage = Watts(66);
  EXPECT_TRUE(tick().estimate.idle);
  gpu_.sample.power_usage = Watts(105);
  const Record& woken = tick();
  EXPECT_FALSE(woken.estimate.idle);
  EXPECT_FALSE(woken.estimate.gpu_utilisation);
  EXPECT_FALSE(woken.estimate.memory_utilisation);
  EXPECT_EQ(woken.actuation.locked, 1530_MHz);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(tick().estimate.idle);
  gpu_.sample.power_usage = Watts(50);
  for (int i = 0; i < 6; ++i) tick();
  EXPECT_TRUE(tick().estimate.idle);
  EXPECT_TRUE(tick().estimate.gpu_utilisation);
}

// A context without kernels draws more, for ever.
TEST_F(RulesTest, AGpuThatDrawsMoreAndStillShowsNoWorkIsIdleAgain) {
  start(false);
  gpu_.sample.gpu_utilisation = percent(0);
  gpu_.sample.power_usage = Watts(15);
  for (int i = 0; i < 10; ++i) tick();
  gpu_.sample.power_usage = Watts(60);
  const Instant begin = clock_.now();
  EXPECT_FALSE(tick().estimate.idle);
  while (clock_.now() - begin < UnseenWork::kLongest + 2s) tick();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(tick().estimate.idle);
}

TEST_F(RulesTest, HotFrom5KelvinBelowTheSlowdownUntil5KelvinLower) {
  start(true);
  for (const auto& [celsius, hot] : {std::pair(81, false),
                                     {82, true},
                                     {80, true},
                                     {77, true},
                                     {76, false},
                                     {81, false},
                                     {82, true}}) {
    gpu_.sample.temperature = Celsius(celsius);
    EXPECT_EQ(tick().estimate.hot, hot) << celsius;
  }
}

// The parked clock is for idle GPUs only, whatever the utilisation does.
RC_GTEST_FIXTURE_PROP(RulesTest, ABusyGpuIsNeverLeftParked, (unsigned seed)) {
  std::mt19937_64 random(seed);
  start(false);
  wish_ = Decision::hold({"", {}});
  Decision said = wish_;
  bool asleep = false;
  for (int i = 0; i < 300; ++i) {
    if (random() % 15 == 0) asleep = !asleep;
    gpu_.sample.gpu_utilisation = percent(asleep ? 0 : static_cast<double>(1 + random() % 100));
    wish_ = Decision::hold({"", {}});
    if (random() % 6 == 0)
      wish_ = Decision::set(Megahertz(static_cast<double>(940 + random() % 600)), {"", {}});
    const Record& r = tick();
    if (wish_.kind == Kind::set) said = wish_;
    const bool asked = said.kind == Kind::set && said.clock <= 952_MHz;
    if (!asleep && r.actuation.locked == 952_MHz) RC_ASSERT(asked);
  }
}

// --- In step -------------------------------------------------------------------------------------

// From the first tick on one clock for all, whatever their sensors' noise, and each record is true
// of its own GPU; those that are left go on with what is known, and the others by themselves.
TEST(InStep, GpusHaveOneClock) {
  Node node(3, "assure");
  for (int gpu = 0; gpu < 3; ++gpu) node.work(gpu, "FFT");
  node.in_step({0, 1, 2}, 7);
  int lowered = 0;
  for (int i = 0; i < 300; ++i) {
    if (i == 200) node.in_step({0}, std::nullopt);
    const auto records = node.tick();
    ASSERT_EQ(records.size(), 3u);
    const auto clock = records[1].actuation.locked;
    EXPECT_EQ(records[2].actuation.locked, clock) << i;
    EXPECT_TRUE(records[0].actuation.locked == clock || i >= 200) << i;
    EXPECT_EQ(records[0].pace.has_value(), i < 200) << i;
    EXPECT_TRUE(records[1].pace) << i;
    EXPECT_EQ(records[2].estimate.sm_clock, records[2].sample->sm_clock);
    if (i >= 200 && records[1].decision.probing) ADD_FAILURE() << "looks anew at " << i;
    lowered += clock < 1530_MHz ? 1 : 0;
  }
  EXPECT_GT(lowered, 200);
}

// What is estimated of all of them is what each would be estimated to save.
TEST(InStep, EachHasItsSaving) {
  Node node(2, "assure");
  for (int gpu = 0; gpu < 2; ++gpu) node.work(gpu, "BWtest");
  node.in_step({0, 1}, 7);
  std::array<Saving, 2> sums;
  for (int i = 0; i < 300; ++i)
    for (const Record& record : node.tick())
      if (record.saving) sums[static_cast<std::size_t>(record.gpu)] += *record.saving;
  for (std::size_t gpu = 0; gpu < 2; ++gpu) {
    EXPECT_GT(sums[gpu].time, 55s);
    EXPECT_NEAR(sums[gpu].energy / node.sims[gpu].energy(), 1, 0.05);
    EXPECT_GT(energy_saving(sums[gpu])->low, 0.1);
  }
}

// Another GPU has its ticks more often, and the loop is a little early or late.
TEST(InStep, NoSavingIsLostAtATickThatIsNotTheUnits) {
  Node node(3, "assure");
  const Policy* const leader = node.replace(0, "assure", 200ms);
  node.replace(1, "assure", 200ms);
  node.replace(2, "nv-boost", 100ms);
  for (int gpu = 0; gpu < 2; ++gpu) node.work(gpu, "BWtest");
  node.in_step({0, 1}, 7);
  std::mt19937_64 random(1);
  std::array<Saving, 2> sums;
  Saving all;  // when it was given last
  for (int i = 0; i < 3000; ++i) {
    node.tick_every = std::chrono::milliseconds(90 + random() % 21);
    for (const Record& record : node.tick()) {
      if (!record.saving) continue;
      sums[static_cast<std::size_t>(record.gpu)] += *record.saving;
      all = *leader->saving();
    }
  }
  EXPECT_GT(all.time, 290s);
  for (const Saving& sum : sums) {
    EXPECT_EQ(sum.time, all.time);
    EXPECT_NEAR(sum.energy / all.energy, 1, 0.05);
    EXPECT_NEAR(sum.energy_at_highest / all.energy_at_highest, 1, 0.05);
  }
}

// Another policy, another unit; what has been replaced is none's.
TEST(InStep, ReplacedGpusLeave) {
  Node node(2, "assure");
  node.in_step({0, 1}, 7);
  node.run(5);
  EXPECT_TRUE(node.tick()[0].pace);
  node.replace(0, "max-freq");
  node.in_step({0}, 7);
  for (const Record& record : node.tick()) EXPECT_FALSE(record.pace);
}

// --- Replay --------------------------------------------------------------------------------------

// The records of a run hold all that a policy needs: a fresh one, fed with the recorded estimates,
// decides the same.
TEST(Replay, ARecordedRunGivesTheSameDecisions) {
  for (const PolicyInfo& info : policies()) {
    SCOPED_TRACE(info.name);
    Node node(2, info.name);
    std::vector<Record> records;
    for (int i = 0; i < 900; ++i) {  // 3 minutes, with work that comes and goes and a lost GPU
      if (i == 100) node.work(0, "GeMM");
      if (i == 300) node.work(1, "ViT_t");
      if (i == 500) node.sims[0].stop();
      node.faults(1).gpu_lost = i >= 600 && i < 650;
      for (const Record& r : node.tick()) records.push_back(r);
    }
    const Capability& capability = node.devices[0].capability();
    const Envelope envelope = *make_envelope(capability);
    for (int gpu = 0; gpu < 2; ++gpu) {
      auto fresh = *info.create(setup_of(capability, envelope, node.params));
      int set = 0;
      for (const Record& r : records) {
        if (r.gpu != gpu || r.estimate.freshness != Freshness::fresh) continue;
        const Decision again = fresh->decide(r.estimate, envelope);
        ASSERT_EQ(again, r.decision) << "at " << seconds(r.time.time_since_epoch()) << " s";
        set += again.kind == Kind::set ? 1 : 0;
      }
      EXPECT_EQ(set > 0, sets_clocks(info));
    }
  }
}

}  // namespace
}  // namespace derate
