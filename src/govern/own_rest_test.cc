#include "govern/own_rest.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "device/sim/sim_device.h"
#include "device/sim/test_sim.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

constexpr Megahertz kParked = 1000_MHz;
constexpr Duration kTick = 200ms;

Estimate resting(Instant time, std::optional<Megahertz> clock) {
  Estimate e;
  e.time = time;
  e.freshness = Freshness::fresh;
  e.idle = true;
  e.sm_clock = clock;
  return e;
}

// A GPU at rest whose clock is `own` while it is left to itself.
struct Rest {
  Megahertz own;
  OwnRest rest = {};
  Instant now{};
  bool left = false;

  bool tick(std::optional<int> tenants = {}) {
    Estimate e = resting(now, left ? own : kParked);
    e.tenants = tenants;
    now += kTick;
    return left = rest.leave(e, kParked);
  }
  // The share of that time in which it is left to itself.
  double share_left(Duration time) {
    int left_ticks = 0;
    const auto ticks = time / kTick;
    for (int i = 0; i < ticks; ++i) left_ticks += tick() ? 1 : 0;
    return left_ticks / static_cast<double>(ticks);
  }
};

TEST(OwnRest, AGpuThatGoesLowerByItselfIsLeftToItself) {
  Rest rest{.own = 135_MHz};
  while (!rest.tick()) ASSERT_LE(rest.now, Instant(4s));
  EXPECT_EQ(rest.share_left(1h), 1);
}

TEST(OwnRest, AGpuThatStaysHighIsParkedButForShortTrials) {
  Rest rest{.own = 1530_MHz};
  EXPECT_GT(rest.share_left(1min), 0.1);
  EXPECT_LT(rest.share_left(1h), 0.03);
}

TEST(OwnRest, WithoutAContextItIsLeftAtOnceAndTriedAgainWhenTheyChange) {
  Rest empty{.own = 135_MHz};
  EXPECT_TRUE(empty.tick(0));
  Rest rest{.own = 1530_MHz};
  rest.share_left(1h);
  while (rest.tick(2)) {
  }
  EXPECT_FALSE(rest.tick(2));
  rest.own = 135_MHz;
  EXPECT_TRUE(rest.tick(0));
}

// A server of requests that come each few seconds.
TEST(OwnRest, ShortRestsCountTogether) {
  Rest rest{.own = 1530_MHz};
  int left = 0;
  for (int request = 0; request < 1000; ++request) {
    for (int i = 0; i < 25; ++i) left += rest.tick() ? 1 : 0;  // 5 s
    rest.rest.wake();
    rest.left = false;
    rest.now += 1s;
  }
  EXPECT_LT(left, 25 * 1000 * 0.05);
}

TEST(OwnRest, WithoutAClockItIsNeverLeft) {
  OwnRest rest;
  for (int i = 0; i < 1000; ++i)
    EXPECT_FALSE(rest.leave(resting(Instant(i * kTick), std::nullopt), kParked));
}

// --- In watts ------------------------------------------------------------------------------------

enum class Holds { nothing, context };

// A context and not one kernel.
Workload no_kernels(const SimChip& chip) {
  Phase phase;
  for (const Megahertz clock : chip.sm_clocks) {
    OperatingPoint point;
    point.power = Watts(chip.idle_power.at(clock));
    point.gpu_utilisation = point.memory_utilisation = Fraction(0);
    phase.points.push_back(point);
  }
  return work_of(chip, std::move(phase));
}

Workload memory_bound_work(const SimChip& chip) {
  OperatingPoint busy = point_of(1, 250);
  busy.gpu_utilisation = busy.memory_utilisation = Fraction(1);
  return work_of(chip, phase_of(chip, busy));
}

// A GPU on a clock of its own, left alone or governed.
struct IdleGpu {
  SimChip chip;
  FakeClock clock = {};
  SimGpu gpu{chip, {}};
  SimDevice device{gpu, clock, 0};
  std::optional<Governor> governor = {};

  void govern(const char* policy, const SafetyRules& rules = {}) {
    const PolicyInfo& info = **find_policy(policy);
    GovernedGpu governed{
        .source = &device, .control = &device, .envelope = *make_envelope(device.capability())};
    governed.policy = *info.create(
        policy_setup(device.capability(), governed.envelope, default_params(info.params), nullptr));
    governed.as_published = info.as_published;
    std::vector<GovernedGpu> gpus;
    gpus.push_back(std::move(governed));
    governor.emplace(std::move(gpus), clock, GovernorOptions{.rules = rules});
  }
  // Its mean power.
  double run(Duration time) {
    const Joules before = gpu.energy();
    for (const Instant end = clock.now() + time; clock.now() < end;) {
      clock.advance(kTick);
      if (governor)
        record = governor->tick().front();
      else
        (void)device.read({}).ok();
    }
    return (gpu.energy() - before).value() / seconds(time);
  }
  Record record = {};
};

// Watts of a GPU without kernels, the mean of ten minutes; under a policy, or left alone.
double idle_watts(const SimChip& chip, const char* policy, Holds holds) {
  IdleGpu idle{.chip = chip};
  if (policy != nullptr) idle.govern(policy);
  if (holds == Holds::context) idle.gpu.add(no_kernels(chip), Duration::zero());
  idle.run(20s);
  return idle.run(10min);
}

TEST(OwnRest, AnIdleGpuNeverDrawsMoreThanLeftAlone) {
  for (const char* name : {"V100-SXM2", "A100-SXM4", "H200", "RTX4070-Laptop"}) {
    const SimChip chip = plain(chip_named(name));
    const double alone = idle_watts(chip, nullptr, Holds::nothing);
    EXPECT_NEAR(idle_watts(chip, "assure", Holds::nothing), alone, 0.01) << name;
    const double context = idle_watts(chip, nullptr, Holds::context);
    const double parked = chip.idle_power.at(make_envelope(sim_capability(chip, 0))->lowest());
    EXPECT_LT(idle_watts(chip, "assure", Holds::context), parked + 0.1 * (context - parked))
        << name;
  }
}

// --- The memory clock ----------------------------------------------------------------------------

constexpr SafetyRules kParksMemory{.park_memory_after = 30s};

TEST(MemoryRest, ALoadedModelOnAGddrBoardSavesWhatItsMemoryDoes) {
  const SimChip chip = plain(chip_named("RTX3090"));
  const double saves = chip.memory_saves.back().value();
  IdleGpu plainly{.chip = chip}, parking{.chip = chip};
  for (IdleGpu* each : {&plainly, &parking}) {
    each->govern("assure", each == &parking ? kParksMemory : SafetyRules{});
    each->gpu.add(no_kernels(chip), Duration::zero());
    each->run(1min);
  }
  const double kept = plainly.run(10min) - parking.run(10min);
  EXPECT_GT(kept, 0.9 * saves);
  EXPECT_EQ(parking.gpu.memory_clock(), Megahertz(405));
  EXPECT_EQ(parking.record.actuation.memory_lock, Megahertz(405));
}

// Work that comes has the highest memory clock after the first reading that shows it.
TEST(MemoryRest, TheFirstKernelGetsItsMemoryBack) {
  const SimChip chip = plain(chip_named("RTX3090"));
  IdleGpu idle{.chip = chip};
  idle.govern("assure", kParksMemory);
  idle.gpu.add(no_kernels(chip), Duration::zero());
  idle.run(1min);
  ASSERT_EQ(idle.gpu.memory_clock(), Megahertz(405));
  const auto job = idle.gpu.add(memory_bound_work(chip), 10s);
  const Instant begun = idle.clock.now();
  while (idle.gpu.memory_clock() != chip.memory_clock) {
    ASSERT_LT(idle.clock.now() - begun, 1s);
    idle.run(kTick);
  }
  EXPECT_FALSE(idle.record.actuation.memory_lock);
  while (!idle.gpu.tenant(job)->finished) idle.run(kTick);
  EXPECT_LT(idle.gpu.tenant(job)->finished.value() - begun, 32s);  // half of it for each context
}

// As docs/operations.md has it: of sensors that renew each second, power each half.
TEST(MemoryRest, TheFirstKernelWaitsLessThanASecondForSlowSensors) {
  for (int n = 0; n < 10; ++n) {
    SimChip chip = chip_named("RTX3090");
    chip.sensors.utilisation.refresh = chip.sensors.utilisation.window = 1s;
    chip.sensors.usage.refresh = chip.sensors.instant->refresh = 500ms;
    IdleGpu idle{.chip = chip};
    idle.govern("assure", kParksMemory);
    idle.gpu.add(no_kernels(chip), Duration::zero());
    idle.run(3min + n * 70ms);
    ASSERT_EQ(idle.gpu.memory_clock(), Megahertz(405));
    idle.gpu.add(memory_bound_work(chip), 10s);
    idle.run(800ms);
    EXPECT_EQ(idle.gpu.memory_clock(), chip.memory_clock) << n;
  }
}

TEST(MemoryRest, ItIsNeverParkedWithoutBeingRequestedNorWithADisplay) {
  for (const bool display : {false, true}) {
    SimChip chip = plain(chip_named("RTX3090"));
    chip.driver.display = display;
    IdleGpu idle{.chip = chip};
    idle.govern("assure", display ? kParksMemory : SafetyRules{});
    idle.gpu.add(no_kernels(chip), Duration::zero());
    idle.run(10min);
    EXPECT_EQ(idle.gpu.memory_clock(), chip.memory_clock);
  }
}

TEST(MemoryRest, WithoutAContextItsOwnControlIsEnough) {
  const SimChip chip = plain(chip_named("RTX3090"));
  IdleGpu idle{.chip = chip};
  idle.govern("assure", kParksMemory);
  idle.run(10min);
  EXPECT_FALSE(idle.record.actuation.memory_lock);
  EXPECT_EQ(idle.gpu.memory_clock(), Megahertz(405));
}

TEST(MemoryRest, ItIsGivenBackAtTheEnd) {
  const SimChip chip = plain(chip_named("RTX3090"));
  IdleGpu idle{.chip = chip};
  idle.govern("assure", kParksMemory);
  idle.gpu.add(no_kernels(chip), Duration::zero());
  idle.run(1min);
  ASSERT_EQ(idle.gpu.memory_clock(), Megahertz(405));
  EXPECT_TRUE(idle.governor->restore().ok());
  idle.governor.reset();
  idle.run(1s);
  EXPECT_EQ(idle.gpu.memory_clock(), chip.memory_clock);
}

// A board with one memory clock, and one whose driver locks none.
TEST(MemoryRest, BoardsWithoutALockAreParkedAsBefore) {
  for (const char* name : {"V100-SXM2", "T4"}) {
    const SimChip chip = plain(chip_named(name));
    IdleGpu idle{.chip = chip};
    idle.govern("assure", kParksMemory);
    idle.gpu.add(no_kernels(chip), Duration::zero());
    idle.run(10min);
    EXPECT_EQ(idle.gpu.memory_clock(), chip.memory_clock) << name;
    EXPECT_EQ(idle.record.actuation.error, "") << name;
    EXPECT_TRUE(idle.gpu.locked()) << name;
  }
}

}  // namespace
}  // namespace derate
