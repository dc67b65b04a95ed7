#include "lab/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "device/sim/test_sim.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

PolicyChoice policy_named(const char* name) {
  const auto info = find_policy(name);
  CHECK(info.ok());
  return {*info, default_params((*info)->params), name};
}

// Reference sensors, a chip without noise in its power; threads as a test machine has them.
CompareSpec spec_of(const SimChip& chip, std::vector<Workload> workloads,
                    std::initializer_list<const char*> policies) {
  CompareSpec spec;
  spec.chip = &chip;
  spec.workloads = std::move(workloads);
  for (const char* name : policies) spec.policies.push_back(policy_named(name));
  spec.idle_before = 5s;
  return spec;
}

Comparison compared(const CompareSpec& spec) {
  SystemClock clock;
  auto comparison = compare(spec, clock);
  EXPECT_TRUE(comparison.ok()) << comparison.error().message;
  CHECK(comparison.ok());
  return *std::move(comparison);
}

// Rate and power at 952 MHz and below, then straight up to 1 and 200 W at the highest clock.
Workload straight_work(const SimChip& chip, double low_rate, double low_watts) {
  Workload workload = steady_work(chip, 200);
  workload.tabled = true;
  for (std::size_t i = 0; i < chip.sm_clocks.size(); ++i) {
    const double share = std::max(0.0, (chip.sm_clocks[i] - chip.flat_voltage_end) /
                                           (chip.sm_clocks.back() - chip.flat_voltage_end));
    auto& point = workload.phases[0].points[i];
    point.rate = low_rate + (1 - low_rate) * share;
    point.power = Watts(low_watts + (200 - low_watts) * share);
  }
  return workload;
}

// --- arithmetic ----------------------------------------------------------------------------------

// At 952 MHz: performance 0.8 at 100 W against 1 at 200 W. Loss 0.2; efficiency (0.8 / 100) /
// (1 / 200) - 1 = +0.6; energy (100 / 0.8) / 200 = 0.625. The clock is there before the job comes.
TEST(Compare, FiguresAreThoseOfAHandMadeWorkload) {
  const SimChip chip = plain_chip();
  const auto comparison =
      compared(spec_of(chip, {straight_work(chip, 0.8, 100)}, {"efficient-fix"}));
  ASSERT_EQ(comparison.policies.size(), 1u);
  const PolicyFigures& figures = comparison.policies[0];
  EXPECT_EQ(figures.label, "efficient-fix");
  EXPECT_NEAR(figures.mean_loss, 0.2, 0.001);
  EXPECT_NEAR(figures.worst_loss, 0.2, 0.001);
  EXPECT_NEAR(figures.mean_gain, 0.6, 0.005);
  EXPECT_NEAR(figures.mean_energy_saving, 0.375, 0.002);
  EXPECT_NEAR(figures.mean_power.value(), 100, 0.5);
  EXPECT_NEAR(figures.mean_energy.value(), 100 * 150, 50);
  EXPECT_EQ(figures.worst_app, "by hand");
  EXPECT_EQ(figures.apps_over, 1);
  EXPECT_EQ(figures.jobs, 1);
  ASSERT_EQ(figures.apps.size(), 1u);
  EXPECT_NEAR(seconds(figures.apps[0].time), 150, 0.1);
  EXPECT_NEAR(figures.apps[0].energy_ratio, 0.625, 0.002);
  // s = g / (1 + g).
  EXPECT_NEAR(figures.mean_energy_saving, figures.mean_gain / (1 + figures.mean_gain), 1e-6);
}

TEST(Compare, MeansAreOverTheApplications) {
  const SimChip chip = plain_chip();
  Workload even = steady_work(chip, 150);
  even.name = "even";
  const auto comparison =
      compared(spec_of(chip, {even, straight_work(chip, 0.8, 100)}, {"efficient-fix", "max-freq"}));
  const PolicyFigures& fixed = comparison.policies[0];
  EXPECT_NEAR(fixed.mean_loss, 0.1, 0.001);
  EXPECT_NEAR(fixed.mean_gain, 0.3, 0.005);
  EXPECT_EQ(fixed.worst_app, "by hand");
  EXPECT_NEAR(fixed.worst_loss, 0.2, 0.001);
  EXPECT_EQ(fixed.apps_over, 1);
  // The baseline against itself.
  const PolicyFigures& full = comparison.policies[1];
  EXPECT_EQ(full.mean_loss, 0);
  EXPECT_EQ(full.mean_gain, 0);
  EXPECT_EQ(full.apps_over + full.broken_jobs, 0);
}

// A loss of 20 % breaks a promise of 10 %, in jobs of at least 30 s: 20 s of work take 25, 40
// take 50.
TEST(Compare, OnlyJobsOfHalfAMinuteBreakAPromise) {
  const SimChip chip = plain_chip();
  CompareSpec spec = spec_of(chip, {straight_work(chip, 0.8, 100)}, {"efficient-fix"});
  spec.seeds = 3;
  spec.work = 20s;
  EXPECT_EQ(compared(spec).policies[0].broken_jobs, 0);
  spec.work = 40s;
  EXPECT_EQ(compared(spec).policies[0].broken_jobs, 3);
  EXPECT_EQ(compared(spec).policies[0].apps[0].broken_jobs, 3);
  EXPECT_EQ(compared(spec).policies[0].jobs, 3);
  spec.delta = 0.25;
  EXPECT_EQ(compared(spec).policies[0].broken_jobs, 0);
}

// --- hindsight -----------------------------------------------------------------------------------

TEST(Compare, TheFrontierIsEveryClockOfTheEnvelope) {
  const SimChip chip = plain_chip();
  const auto comparison = compared(spec_of(chip, {straight_work(chip, 0.8, 100)}, {}));
  EXPECT_TRUE(comparison.policies.empty());
  ASSERT_FALSE(comparison.frontier.empty());
  EXPECT_EQ(comparison.frontier.front().clock, chip.flat_voltage_end);
  EXPECT_EQ(comparison.frontier.back().clock, chip.sm_clocks.back());
  EXPECT_NEAR(comparison.frontier.front().result.mean.loss, 0.2, 1e-12);
  EXPECT_NEAR(comparison.frontier.front().result.mean.gain, 0.6, 1e-12);
  EXPECT_EQ(comparison.frontier.back().result.mean.loss, 0);
  EXPECT_EQ(comparison.frontier.back().result.mean.gain, 0);
  EXPECT_EQ(frontier_gain(comparison.frontier, 0.21), std::nullopt);
  EXPECT_EQ(frontier_gain(comparison.frontier, -0.01), std::nullopt);
  EXPECT_NEAR(frontier_gain(comparison.frontier, 0.2 - 1e-9).value_or(-1), 0.6, 1e-6);
  EXPECT_NEAR(frontier_gain(comparison.frontier, 0).value_or(-1), 0, 1e-12);
  // Rate 0.9 stands at 150 W: (0.9 / 150) / (1 / 200) - 1 = +0.2; between two clocks, nearly.
  EXPECT_NEAR(frontier_gain(comparison.frontier, 0.1).value_or(-1), 0.2, 0.001);
}

TEST(Compare, TheOracleKeepsThePromise) {
  for (const SimChip& chip : modelled_chips()) {
    double before = -1;
    for (const double delta : {0.0, 0.02, 0.05, 0.1, 0.2, 1.0}) {
      CompareSpec spec = spec_of(chip, all_workloads(chip), {});
      spec.delta = delta;
      spec.work = 1s;
      const auto comparison = compared(spec);
      EXPECT_LE(comparison.oracle.worst_loss, delta) << chip.name;
      EXPECT_LE(comparison.oracle.mean.loss, comparison.oracle.worst_loss);
      EXPECT_GE(comparison.oracle.mean.gain, before) << chip.name;
      before = comparison.oracle.mean.gain;
      // No constant clock within the promise beats it.
      for (const auto& fixed : comparison.frontier)
        if (fixed.result.worst_loss <= delta) {
          EXPECT_GE(comparison.oracle.mean.gain, fixed.result.mean.gain - 1e-12);
        }
    }
    EXPECT_GT(before, 0.1) << chip.name;
  }
}

// --- the run -------------------------------------------------------------------------------------

TEST(Compare, ThreadsDoNotChangeTheFigures) {
  const SimChip& chip = chip_named("V100-SXM2");
  auto workloads = all_workloads(chip);
  workloads.resize(4);
  CompareSpec spec = spec_of(chip, std::move(workloads), {"geepafs", "utiliz-scale"});
  spec.work = 40s;
  spec.seeds = 3;
  spec.arrival_spread = 15s;
  spec.threads = 1;
  const auto one = compared(spec);
  spec.threads = 7;
  const auto seven = compared(spec);
  ASSERT_EQ(one.policies.size(), seven.policies.size());
  EXPECT_EQ(one.simulated, seven.simulated);
  for (std::size_t p = 0; p < one.policies.size(); ++p) {
    const PolicyFigures &a = one.policies[p], &b = seven.policies[p];
    EXPECT_EQ(a.mean_loss, b.mean_loss);
    EXPECT_EQ(a.mean_gain, b.mean_gain);
    EXPECT_EQ(a.worst_job_loss, b.worst_job_loss);
    for (std::size_t app = 0; app < a.apps.size(); ++app) {
      EXPECT_EQ(a.apps[app].app, b.apps[app].app);
      EXPECT_EQ(a.apps[app].energy, b.apps[app].energy);
      EXPECT_EQ(a.apps[app].time, b.apps[app].time);
    }
  }
}

TEST(Compare, TellsItsProgress) {
  const SimChip chip = plain_chip();
  CompareSpec spec = spec_of(chip, {steady_work(chip, 100)}, {"efficient-fix"});
  spec.seeds = 4;
  FakeClock clock;
  std::size_t last = 0, all = 0;
  const auto done = compare(spec, clock, [&](std::size_t now, std::size_t of) {
    EXPECT_GE(now, last);
    last = now;
    all = of;
  });
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(last, 8u);  // the baseline's jobs are jobs
  EXPECT_EQ(all, 8u);
}

TEST(Compare, ErrorsSayWhatIsMissing) {
  const SimChip chip = plain_chip();
  SystemClock clock;
  const auto none = compare(spec_of(chip, {}, {}), clock);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::not_found);
  EXPECT_NE(none.error().message.find(chip.name), std::string::npos);
  CompareSpec stuck = spec_of(chip, {work_of(chip, phase_of(chip, point_of(1e-9, 100)))}, {});
  stuck.work = 1s;
  const auto never = compare(stuck, clock);
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, Errc::gpu_stuck);
}

// --- one job -------------------------------------------------------------------------------------

TEST(SimJob, TheSeedDecidesItAndTheIdleTimeBeforeIsNotItsOwn) {
  const SimChip& chip = chip_named("V100-SXM2");
  const Workload workload = workload_named(chip, "GeMM");
  SimJobSpec spec;
  spec.chip = &chip;
  spec.workload = &workload;
  const PolicyChoice geepafs = policy_named("geepafs");
  spec.policy = geepafs.info;
  spec.params = geepafs.params;
  spec.work = 30s;
  spec.arrival_spread = 15s;
  const auto a = *run_sim_job(spec), b = *run_sim_job(spec);
  EXPECT_EQ(a.time, b.time);
  EXPECT_EQ(a.energy, b.energy);
  EXPECT_EQ(a.clock_writes, b.clock_writes);
  spec.gpu.seed = 2;
  EXPECT_NE(run_sim_job(spec)->energy, a.energy);
  EXPECT_GE(a.time, 30s);
  EXPECT_GE(a.simulated, a.time + 20s);
  EXPECT_LE(a.simulated, a.time + 20s + 16s + 1s);
  EXPECT_GT(a.clock_writes, 0);
  // The counter's edges: 20 ms of refresh and a tick of 200 ms at up to 250 W.
  EXPECT_NEAR(a.sensed_energy.value(), a.energy.value(), 60);
}

// --- the published figures -----------------------------------------------------------------------

// The measured tables are not part of the repository.
class PublishedFigures : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("DERATE_DATA");
    const auto root = std::filesystem::path(__FILE__).parent_path() / "../..";
    const auto folder = (data ? std::filesystem::path(data) : root / "../shared/data") / "v100";
    if (!std::filesystem::exists(folder / "performance.csv"))
      GTEST_SKIP() << "skipped: no tables at " << folder.string();
    auto loaded = load_workload_tables(folder.string(), chip);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    workloads = *std::move(loaded);
    ASSERT_EQ(workloads.size(), 22u);
  }
  SimChip chip = with_reference_sensors(chip_named("V100-SXM2"));
  std::vector<Workload> workloads;
};

TEST_F(PublishedFigures, AConstantClockOf952) {
  CompareSpec spec = spec_of(chip, workloads, {});
  spec.work = 1s;
  const auto comparison = compared(spec);
  ASSERT_EQ(comparison.frontier.front().clock, 952_MHz);
  const HindsightResult& fixed = comparison.frontier.front().result;
  EXPECT_NEAR(fixed.mean.gain, 0.444, 0.005);
  EXPECT_NEAR(fixed.mean.loss, 0.141, 0.005);
  EXPECT_NEAR(fixed.worst_loss, 0.347, 0.005);
  EXPECT_NEAR(comparison.oracle.mean.gain, 0.376, 0.005);
  EXPECT_NEAR(comparison.oracle.mean.loss, 0.076, 0.005);
}

TEST_F(PublishedFigures, GeepafsAsReplayed) {
  CompareSpec spec = spec_of(chip, workloads, {"geepafs", "efficient-fix"});
  spec.idle_before = 20s;
  spec.arrival_spread = 15s;
  spec.seeds = 10;
  const auto comparison = compared(spec);
  const PolicyFigures& geepafs = comparison.policies[0];
  EXPECT_NEAR(geepafs.mean_gain, 0.345, 0.015);
  EXPECT_NEAR(geepafs.mean_loss, 0.072, 0.015);
  EXPECT_NEAR(geepafs.worst_loss, 0.132, 0.015);
  EXPECT_EQ(geepafs.worst_app, "GeMM");
  // Run, not computed: the same as the frontier's end.
  EXPECT_NEAR(comparison.policies[1].mean_gain, 0.444, 0.005);
  EXPECT_NEAR(comparison.policies[1].mean_loss, 0.141, 0.005);
}

}  // namespace
}  // namespace derate
