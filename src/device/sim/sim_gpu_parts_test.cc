#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/clock.h"
#include "device/sim/sim_device.h"
#include "device/sim/sim_mig.h"
#include "device/sim/test_sim.h"

namespace derate {
namespace {

SimChip plain_h200() { return plain(chip_named("H200")); }

Workload busy_work(const SimChip& chip, double watts, double sm) {
  OperatingPoint point = point_of(1, watts);
  point.activity.sm = Fraction(sm);
  point.gpu_utilisation = Fraction(0.8);
  point.memory_utilisation = Fraction(0.3);
  return work_of(chip, phase_of(chip, point));
}

std::vector<GpuInstance> cut(const SimChip& chip, std::string_view layout) {
  auto instances = make_instances(chip, layout);
  CHECK(instances.ok());
  return *std::move(instances);
}

TEST(MigLayout, NamesAndBounds) {
  const SimChip& h200 = chip_named("H200");
  EXPECT_EQ(cut(h200, "3g,2g.35gb, 1g").size(), 3U);
  EXPECT_TRUE(cut(h200, "").empty());
  EXPECT_FALSE(make_instances(h200, "5g").ok());
  EXPECT_FALSE(make_instances(h200, "3g,3g,1g").ok());  // 9 memory slices
  EXPECT_FALSE(make_instances(chip_named("V100-SXM2"), "1g").ok());
}

// What the jobs are charged above the base is what the board drew above it.
RC_GTEST_PROP(SimGpuParts, TrueSharesAddUpToTheBoard, ()) {
  const SimChip chip = plain_h200();
  SimGpu gpu(chip, {});
  const bool capped = *rc::gen::arbitrary<bool>();
  const double extra = *rc::gen::inRange(0, 40);
  gpu.set_board_extra(Watts(extra));
  if (capped) gpu.set_power_limit(Watts(250));
  gpu.partition(cut(chip, "3g,2g,1g,1g"));
  std::vector<SimGpu::TenantId> jobs;
  for (int id = 1; id <= 4; ++id)
    jobs.push_back(
        gpu.add(busy_work(chip, *rc::gen::inRange(150, 900), 0.5), std::chrono::seconds(0), id));
  gpu.advance_to(Instant(std::chrono::seconds(1)));
  double before = gpu.energy().value(), charged = 0, own_before = 0;
  for (const auto id : jobs) own_before += gpu.tenant(id)->above_base.value();
  gpu.advance_to(Instant(std::chrono::seconds(3)));
  for (const auto id : jobs) charged += gpu.tenant(id)->above_base.value();
  const double base = 2 * (chip.idle_power.at(chip.unused_clock) + extra);
  RC_ASSERT(std::abs(gpu.energy().value() - before - base - (charged - own_before)) < 1e-6);
}

TEST(SimGpuParts, EqualInstancesWithEqualWorkAreCharged) {
  const SimChip chip = plain_h200();
  SimGpu gpu(chip, {});
  gpu.partition(cut(chip, "2g,2g,2g"));
  std::vector<SimGpu::TenantId> jobs;
  for (int id = 1; id <= 2; ++id)
    jobs.push_back(gpu.add(busy_work(chip, 500, 0.5), Duration::zero(), id));
  const auto parked =
      gpu.add(steady_work(chip, chip.idle_power.at(chip.sm_clocks.back())), Duration::zero(), 3);
  gpu.advance_to(Instant(std::chrono::seconds(10)));
  EXPECT_NEAR(gpu.tenant(jobs[0])->above_base.value(), gpu.tenant(jobs[1])->above_base.value(),
              1e-6);
  // A third of the context step, 47 W, and nothing else.
  EXPECT_NEAR(gpu.tenant(parked)->above_base.value(), 10 * 47 / 3.0, 1.0);
}

TEST(SimGpuParts, RunsAtTheInstancesShareOfTheRate) {
  const SimChip chip = plain_h200();
  SimGpu gpu(chip, {});
  gpu.partition(cut(chip, "3g,1g"));
  const auto large = gpu.add(busy_work(chip, 300, 0.5), Duration::zero(), 1);
  const auto small = gpu.add(busy_work(chip, 300, 0.5), Duration::zero(), 2);
  gpu.advance_to(Instant(std::chrono::seconds(2)));
  EXPECT_NEAR(gpu.tenant(large)->done / gpu.tenant(small)->done, 60 / 16.0, 1e-6);
}

TEST(SimDeviceTenancy, ShowsCountersInTheInstancesOwnUnitsSinceLastAsked) {
  const SimChip chip = plain_h200();
  SimGpu gpu(chip, {});
  gpu.partition(cut(chip, "3g,1g,1g"));
  gpu.add(busy_work(chip, 300, 0.5), Duration::zero(), 2);
  FakeClock clock;
  SimDevice device(gpu, clock, 0);
  device.counter_errors = {.noise = 0, .scale = {{2, 0.5}}};
  ASSERT_TRUE(device.tenancy().ok());
  clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(device.tenancy().ok());  // the windows begin
  clock.advance(std::chrono::seconds(1));
  const auto seen = device.tenancy();
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->instances.size(), 3U);
  EXPECT_NEAR(seen->instances[1].activity.sm.value().value(), 0.25, 1e-6);
  EXPECT_NEAR(seen->instances[0].activity.sm.value().value(), 0, 1e-9);
  EXPECT_NEAR(seen->board.activity.sm.value().value(), 0.5 * 16 / 132, 1e-6);
  ASSERT_EQ(seen->processes.size(), 1U);
  EXPECT_EQ(seen->processes[0].gpu_instance, 2);
  EXPECT_FALSE(seen->processes[0].sm_utilisation);  // under MIG nobody tells it
  EXPECT_FALSE(seen->board.gpu_utilisation);
}

TEST(SimDeviceTenancy, WithoutMigEachProcessHasItsShareOfTheTime) {
  const SimChip chip = plain_h200();
  SimGpu gpu(chip, {});
  gpu.add(busy_work(chip, 300, 0.5), Duration::zero());
  gpu.add(busy_work(chip, 500, 0.9), Duration::zero());
  FakeClock clock;
  SimDevice device(gpu, clock, 0);
  ASSERT_TRUE(device.tenancy().ok());
  clock.advance(std::chrono::seconds(2));
  const auto seen = device.tenancy();
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->processes.size(), 2U);
  for (const GpuProcess& process : seen->processes) {
    EXPECT_EQ(process.sm_utilisation, percent(40));
    EXPECT_EQ(process.memory_utilisation, percent(15));
  }
}

// A counter that sees 25 of 100 ms is right in the mean and off in the short.
TEST(SimSensorsSight, IsRightInTheMean) {
  SimChip chip = plain_h200();
  chip.sensors.energy_sight = std::chrono::milliseconds(25);
  SimGpu gpu(chip, {});
  Phase on = phase_of(chip, point_of(1, 600));
  on.work = std::chrono::milliseconds(70);
  on.gap = std::chrono::milliseconds(60);
  gpu.start(work_of(chip, on), Duration::zero());
  gpu.advance_to(Instant(std::chrono::seconds(400)));
  EXPECT_NEAR(gpu.sensors().energy().value() / gpu.energy().value(), 1, 0.02);
  EXPECT_NE(std::llround(gpu.sensors().energy().value()), std::llround(gpu.energy().value()));
}

TEST(SimSensorsLag, TellsWhatWasTrueBefore) {
  SimChip chip = plain_h200();
  SimGpu prompt(chip, {});
  chip.sensors.energy_lag = std::chrono::milliseconds(500);
  SimGpu late(chip, {});
  for (SimGpu* gpu : {&prompt, &late}) {
    gpu->start(steady_work(chip, 500), Duration::zero());
    gpu->advance_to(Instant(std::chrono::seconds(10)));
  }
  EXPECT_NEAR((prompt.sensors().energy() - late.sensors().energy()).value(), 250, 1);
}

}  // namespace
}  // namespace derate
