#include "device/sim/sim_device.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// A GPU behind the device interfaces, on virtual time.
struct Bench {
  explicit Bench(SimChip c, std::uint64_t seed = 1)
      : chip(std::move(c)), gpu(chip, {.seed = seed}), device(gpu, clock, 0, seed) {}

  Sample read(const ReadPlan& plan = {}) {
    auto sample = device.read(plan);
    EXPECT_TRUE(sample.ok());
    return sample ? *std::move(sample) : Sample{};
  }
  Sample read_after(Duration wait) {
    clock.advance(wait);
    return read();
  }

  SimChip chip;
  FakeClock clock;
  SimGpu gpu;
  SimDevice device;
};

TEST(SimDevice, ReadingRunsThePhysicsUpToTheClock) {
  Bench bench(chip_named("V100-SXM2"));
  bench.clock.advance(1h);  // before the first read: the GPU was not there yet
  EXPECT_EQ(bench.read().time, Instant(1h));
  EXPECT_EQ(bench.gpu.now(), Instant{});
  bench.clock.advance(10s);
  EXPECT_EQ(bench.read().time, Instant(1h + 10s));
  EXPECT_EQ(bench.gpu.now(), Instant(10s));
}

// The GPU was there, idle, before anybody looked.
TEST(SimDevice, TheFirstReadShowsAnIdleGpu) {
  Bench bench(chip_named("H200"));
  const Sample sample = bench.read();
  const Watts idle(bench.chip.idle_power.at(bench.chip.unused_clock));
  EXPECT_EQ(sample.power_usage, idle);
  EXPECT_EQ(sample.power_instant, idle);
  EXPECT_EQ(sample.power_average, idle);
  EXPECT_EQ(sample.gpu_utilisation, Fraction(0));
  EXPECT_EQ(sample.memory_utilisation, Fraction(0));
  EXPECT_EQ(sample.activity, Activity{});
  EXPECT_TRUE(sample.sm_clock && sample.temperature && sample.throttle_reasons);
}

TEST(SimDevice, ShowsWhatTheGpuDoes) {
  Bench bench(plain(chip_named("H200")));
  (void)bench.read();
  bench.gpu.start(steady_work(bench.chip, 300), 0s);
  const Sample sample = bench.read_after(5s);
  EXPECT_EQ(sample.source, SampleSource::simulated);
  EXPECT_EQ(sample.sm_clock, 1980_MHz);
  EXPECT_EQ(sample.memory_clock, 3201_MHz);
  EXPECT_NEAR(sample.power_instant->value(), 300, 1e-9);
  EXPECT_NEAR(sample.power_average->value(), 300, 1e-9);
  EXPECT_EQ(sample.throttle_reasons, 0u);
  EXPECT_NEAR(sample.temperature->value(), bench.gpu.temperature().value(), 0.5);
  EXPECT_NEAR(sample.energy->value(), 5 * 300, 31);  // up to 100 ms old
}

// --- tabled work ---------------------------------------------------------------------------------

TEST(SimDevice, TabledUtilisationReadsAsTheTableRounded) {
  const char* performance = "f,952,1530\na,0.8,1\n";
  const char* power = "f,952,1530\na,100,200\n";
  const char* utilisation =
      "app,set_mhz,gpu_util_pct,mem_bw_util_pct\na,952,97.6,20.4\na,1530,99.4,31.7\n";
  Bench bench(plain_chip());
  const WorkloadTables tables{{performance, "p"}, {power, "w"}, {{utilisation, "u"}}};
  bench.gpu.start((*parse_workload_tables(tables, bench.chip))[0], 0s);
  ASSERT_TRUE(bench.device.lock_sm_clock(952_MHz, 952_MHz).ok());
  (void)bench.read_after(1s);
  for (int i = 0; i < 100; ++i) {
    const Sample sample = bench.read_after(30ms);
    EXPECT_EQ(sample.gpu_utilisation, percent(98));
    EXPECT_EQ(sample.memory_utilisation, percent(20));
    EXPECT_NEAR(sample.power_usage->value(), 100, 1e-9);
    EXPECT_EQ(sample.activity, Activity{});
  }
  ASSERT_TRUE(bench.device.lock_sm_clock(1530_MHz, 1530_MHz).ok());
  const Sample sample = bench.read_after(1s);
  EXPECT_EQ(sample.gpu_utilisation, percent(99));
  EXPECT_EQ(sample.memory_utilisation, percent(32));
  EXPECT_NEAR(sample.power_usage->value(), 200, 1e-9);
}

TEST(SimDevice, NoTableOfUtilisationMeansNoUtilisation) {
  Bench bench(chip_named("H200"));
  const WorkloadTables tables{{"f,1980\na,1\n", "p"}, {"f,1980\na,300\n", "w"}, std::nullopt};
  bench.gpu.start((*parse_workload_tables(tables, bench.chip))[0], 0s);
  (void)bench.read();  // the GPU's time begins here, and what it shows before the first renewal
  (void)bench.read_after(1s);
  for (int i = 0; i < 100; ++i) {
    const Sample sample = bench.read_after(100ms);
    EXPECT_FALSE(sample.gpu_utilisation || sample.memory_utilisation);
    EXPECT_EQ(sample.activity, Activity{});
    EXPECT_TRUE(sample.power_usage && sample.energy);
  }
}

// --- activity and plan ---------------------------------------------------------------------------

TEST(SimDevice, TheSecondReadWithinAWindowHasNoActivity) {
  Bench bench(chip_named("H200"));
  bench.gpu.start(workload_named(bench.chip, "copy"), 0s);
  (void)bench.read_after(1s);
  int with = 0;
  for (int i = 0; i < 400; ++i) with += bench.read_after(50ms).activity == Activity{} ? 0 : 1;
  EXPECT_NEAR(with, 200, 1);  // windows of 100 ms
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(bench.read_after(100ms).activity.dram);
    EXPECT_EQ(bench.read().activity, Activity{});
  }
  // A read that does not ask uses up no window.
  bench.clock.advance(100ms);
  EXPECT_EQ(bench.read({.energy = true, .activity = false}).activity, Activity{});
  EXPECT_TRUE(bench.read().activity.dram);
}

RC_GTEST_PROP(SimDeviceProperty, ThePlanIsKeptLateOrNot, (bool energy, bool activity)) {
  SimChip chip = chip_named("H200");
  chip.sensors.late_probability = 0.5;
  Bench bench(chip, *rc::gen::arbitrary<std::uint64_t>());
  bench.gpu.start(workload_named(bench.chip, "copy"), 0s);
  for (int i = 0; i < 50; ++i) {
    (void)bench.read_after(100ms);
    bench.clock.advance(100ms);
    const Sample sample = bench.read({energy, activity});
    if (!energy) RC_ASSERT(!sample.energy);
    if (!activity) RC_ASSERT(sample.activity == Activity{});
  }
}

// --- processes -----------------------------------------------------------------------------------

TEST(SimDevice, AJobIsAProcess) {
  Bench bench(chip_named("V100-SXM2"));
  EXPECT_TRUE(bench.device.processes()->empty());
  EXPECT_EQ(bench.read().tenants, 0);
  bench.gpu.start(workload_named(bench.chip, "GeMM"), 0s);
  bench.clock.advance(1s);
  const auto processes = *bench.device.processes();
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].name, "GeMM");
  EXPECT_EQ(bench.read().tenants, 1);
  EXPECT_EQ(bench.read({.processes = false}).tenants, std::nullopt);
  bench.gpu.stop();
  EXPECT_TRUE(bench.device.processes()->empty());
  EXPECT_EQ(bench.read().tenants, 0);
}

// --- faults --------------------------------------------------------------------------------------

TEST(SimDevice, ALostGpuFailsEveryCallAndNamesItself) {
  Bench bench(chip_named("V100-SXM2"));
  (void)bench.read_after(1s);
  bench.device.faults.gpu_lost = true;
  const Megahertz clock = bench.chip.sm_clocks[50];
  const auto lost = [&](const auto& result) {
    return !result.ok() && result.error().code == Errc::gpu_lost &&
           result.error().message.find(bench.device.capability().id.uuid) != std::string::npos;
  };
  EXPECT_TRUE(lost(bench.device.read({})));
  EXPECT_TRUE(lost(bench.device.processes()));
  EXPECT_TRUE(lost(bench.device.lock_sm_clock(clock, clock)));
  EXPECT_TRUE(lost(bench.device.reset_sm_clock()));
  bench.device.faults.gpu_lost = false;
  EXPECT_TRUE(bench.device.read({}).ok());
  EXPECT_FALSE(bench.gpu.locked());
}

TEST(SimDevice, WithoutPermissionItReadsAndDoesNotWrite) {
  Bench bench(chip_named("V100-SXM2"));
  bench.device.faults.no_permission = true;
  const Megahertz clock = bench.chip.sm_clocks[50];
  EXPECT_EQ(bench.device.lock_sm_clock(clock, clock).error().code, Errc::no_permission);
  EXPECT_EQ(bench.device.reset_sm_clock().error().code, Errc::no_permission);
  EXPECT_FALSE(bench.gpu.locked());
  EXPECT_TRUE(bench.device.read({}).ok());
  EXPECT_TRUE(bench.device.processes().ok());
}

TEST(SimDevice, IgnoredWritesSucceedAndDoNothing) {
  Bench bench(chip_named("V100-SXM2"));
  bench.gpu.start(workload_named(bench.chip, "GeMM"), 0s);
  bench.device.faults.writes_ignored = true;
  const Megahertz clock = bench.chip.sm_clocks[50];
  EXPECT_TRUE(bench.device.lock_sm_clock(clock, clock).ok());
  EXPECT_EQ(bench.read_after(2s).sm_clock, bench.chip.sm_clocks.back());
  bench.device.faults.writes_ignored = false;
  EXPECT_TRUE(bench.device.lock_sm_clock(clock, clock).ok());
  EXPECT_EQ(bench.read_after(2s).sm_clock, clock);
  bench.device.faults.writes_ignored = true;
  EXPECT_TRUE(bench.device.reset_sm_clock().ok());
  EXPECT_EQ(bench.read_after(2s).sm_clock, clock);
}

// 2,000 reads, 400 expected to go wrong, sd sqrt(2000 x 0.2 x 0.8) = 18: bounds are four of them.
TEST(SimDevice, ReadsAreLostAsOftenAsStated) {
  SimChip chip = chip_named("V100-SXM2");
  chip.sensors.loss_probability = 0.2;
  Bench bench(chip);
  int lost = 0;
  for (int i = 0; i < 2000; ++i) {
    bench.clock.advance(10ms);
    const auto sample = bench.device.read({});
    if (sample.ok()) continue;
    EXPECT_EQ(sample.error().code, Errc::query_failed);
    ++lost;
  }
  EXPECT_NEAR(lost, 400, 72);
}

TEST(SimDevice, LateReadsGiveTheOldSampleWithItsTime) {
  SimChip chip = chip_named("V100-SXM2");
  chip.sensors.late_probability = 0.2;
  Bench bench(chip);
  Sample before = bench.read();
  int late = 0;
  for (int i = 0; i < 2000; ++i) {
    const Sample sample = bench.read_after(10ms);
    if (sample.time != bench.clock.now()) {
      EXPECT_EQ(sample, before);
      ++late;
    }
    before = sample;
  }
  EXPECT_NEAR(late, 400, 72);
}

// --- writes --------------------------------------------------------------------------------------

RC_GTEST_PROP(SimDeviceProperty, ALockIsMetWithinTwoSeconds, ()) {
  Bench bench(sim_chips()[*rc::gen::inRange<std::size_t>(0, 3)],
              *rc::gen::arbitrary<std::uint64_t>());
  bench.gpu.start(steady_work(bench.chip, 100), 0s);
  const auto& clocks = bench.chip.sm_clocks;
  const auto a = *rc::gen::inRange<std::size_t>(0, clocks.size());
  const auto b = *rc::gen::inRange<std::size_t>(0, clocks.size());
  const Megahertz low = clocks[std::min(a, b)], high = clocks[std::max(a, b)];
  RC_ASSERT(bench.device.lock_sm_clock(low, high).ok());
  RC_ASSERT(bench.read_after(2s).sm_clock == high);
  bench.gpu.stop();
  RC_ASSERT(bench.read_after(2s).sm_clock == low);
}

TEST(SimDevice, RefusedLocksSayWhyAndChangeNothing) {
  Bench bench(chip_named("V100-SXM2"));
  const auto unsupported = bench.device.lock_sm_clock(953_MHz, 1530_MHz);
  ASSERT_FALSE(unsupported.ok());
  EXPECT_EQ(unsupported.error().code, Errc::invalid_argument);
  EXPECT_NE(unsupported.error().message.find("953 MHz"), std::string::npos);
  const auto reversed = bench.device.lock_sm_clock(1530_MHz, 952_MHz);
  ASSERT_FALSE(reversed.ok());
  EXPECT_EQ(reversed.error().code, Errc::invalid_argument);
  EXPECT_NE(reversed.error().message.find("1530"), std::string::npos);
  EXPECT_FALSE(bench.gpu.locked());
}

TEST(SimDevice, ALaptopsPowerLimitIsFixed) {
  Bench bench(chip_named("RTX4070-Laptop"));
  EXPECT_FALSE(bench.device.capability().power_limits);
  EXPECT_FALSE(bench.device.settings()->power_limit);
  const auto refused = bench.device.set_power_limit(80_W);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::not_supported);
  EXPECT_EQ(bench.gpu.power_limit(), 80_W);
}

// --- seed ----------------------------------------------------------------------------------------

std::vector<Sample> stream(std::uint64_t seed) {
  SimChip chip = chip_named("H200");
  chip.sensors.late_probability = 0.1;
  Bench bench(chip, seed);
  bench.gpu.start(workload_named(bench.chip, "fft"), 10s);
  std::vector<Sample> samples;
  for (int i = 0; i < 200; ++i) samples.push_back(bench.read_after(100ms));
  return samples;
}

TEST(SimDevice, TheSeedDecidesTheSamples) {
  EXPECT_EQ(stream(1), stream(1));
  EXPECT_NE(stream(1), stream(2));
}

}  // namespace
}  // namespace derate
