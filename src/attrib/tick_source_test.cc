#include "attrib/tick_source.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "attrib/allocate_energy.h"

namespace derate {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::optional<Fraction> maybe_a_share() {
  const double value = *rc::gen::weightedOneOf<double>(
      {{6, rc::gen::map(rc::gen::inRange(0, 101), [](int p) { return p / 100.0; })},
       {2, rc::gen::element(1.29, -0.1, kNaN, 1e300)}});
  return *rc::gen::arbitrary<bool>() ? std::optional(Fraction(value)) : std::nullopt;
}

GpuInstance any_instance(int id) {
  GpuInstance out{.id = id, .slices = *rc::gen::inRange(-1, 9)};
  out.memory_slices = *rc::gen::inRange(-1, 9);
  out.multiprocessors = *rc::gen::inRange(-1, 140);
  out.activity.sm = maybe_a_share();
  out.activity.dram = maybe_a_share();
  return out;
}

// A reading of a GPU on which anything may happen, `counter` aside.
Tenancy any_reading(Instant time) {
  Tenancy out{.mig = *rc::gen::arbitrary<bool>()};
  out.board.time = time;
  out.board.activity.sm = maybe_a_share();
  out.board.power_usage = Watts(*rc::gen::element(0.0, 250.0, -1.0, kNaN, 1e7));
  if (*rc::gen::arbitrary<bool>()) {
    out.slices = *rc::gen::inRange(0, 8);
    out.multiprocessors = *rc::gen::inRange(0, 133);
  }
  const int tenants = *rc::gen::inRange(0, 5);
  for (int i = 0; i < tenants; ++i) {
    out.instances.push_back(any_instance(i));
    GpuProcess process{.pid = 100 + i, .sm_utilisation = maybe_a_share()};
    if (*rc::gen::arbitrary<bool>()) process.gpu_instance = *rc::gen::inRange(0, 5);
    out.processes.push_back(process);
  }
  return out;
}

// Now and then one without a key, or two of one.
TenantKeys any_keys() {
  TenantKeys out;
  for (auto* list : {&out.instances, &out.processes})
    for (int i = 0; i < 5; ++i)
      list->push_back(*rc::gen::element<std::string>("", "a", "b", "c", "d", "e", "f"));
  return out;
}

void check_sound(const SourcedTick& sourced) {
  const AttribTick& tick = sourced.tick;
  RC_ASSERT(tick.length > Duration::zero());
  RC_ASSERT((tick.energy_mj || !sourced.reason().empty()));
  RC_ASSERT((!tick.energy_mj || *tick.energy_mj >= 0));
  std::vector<std::string> keys;
  for (const TenantTick& tenant : tick.tenants) {
    RC_ASSERT(!tenant.key.empty());
    keys.push_back(tenant.key);
    for (const auto& share : {std::optional(tenant.share), std::optional(tenant.memory_share),
                              tenant.activity.sm, tenant.activity.dram, tenant.sm_utilisation})
      RC_ASSERT((!share || (share->value() >= 0 && share->value() <= 1)));
  }
  std::sort(keys.begin(), keys.end());
  RC_ASSERT(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
}

std::int64_t sum_of(const Split& split) {
  std::int64_t out = split.unallocated_mj;
  for (const TenantEnergy& tenant : split.tenants) {
    RC_ASSERT((tenant.base_mj >= 0 && tenant.context_mj >= 0 && tenant.dynamic_mj >= 0));
    out += tenant.total_mj();
  }
  RC_ASSERT(split.unallocated_mj >= 0);
  return out;
}

enum class Fate { goes_on, back, missing, missed };

// Whatever comes: between two breaks of the counter the splits add up to its difference.
RC_GTEST_PROP(TickSource, SplitsAddUpToTheCounterPiecewise, ()) {
  TickSource source;
  const auto method = split_methods().front().make({.base = Watts(80), .context = Watts(30)});
  std::int64_t counter = *rc::gen::inRange<std::int64_t>(0, 1'000'000'000);
  std::optional<std::int64_t> baseline;
  std::int64_t wanted = 0, got = 0;
  std::uint64_t breaks = 0;
  Instant time{};
  const int readings = *rc::gen::inRange(2, 40);
  for (int i = 0; i < readings; ++i) {
    const auto fate = *rc::gen::weightedElement<Fate>(
        {{8, Fate::goes_on}, {1, Fate::back}, {1, Fate::missing}, {1, Fate::missed}});
    time += std::chrono::milliseconds(*rc::gen::inRange(1, 5000));
    counter += 1 + *rc::gen::inRange<std::int64_t>(0, 700'000) / 5000;
    if (fate == Fate::missed) continue;
    Tenancy now = any_reading(time);
    if (fate == Fate::back) counter = counter / 2 - 1 > 0 ? counter / 2 - 1 : counter;
    const bool broken = baseline && (fate == Fate::missing || counter < *baseline);
    if (fate != Fate::missing) now.board.energy = Joules(static_cast<double>(counter) / 1000);
    // Before any counter was seen power stands in; that is another property.
    if (fate == Fate::missing && !baseline && breaks == 0) now.board.power_usage.reset();
    if (baseline && !broken) wanted += counter - *baseline;
    breaks += broken ? 1 : 0;
    baseline = fate == Fate::missing ? std::nullopt : std::optional(counter);
    const auto tick = source.next(now, any_keys());
    if (!tick) continue;
    check_sound(*tick);
    const bool by_power = tick->issues[static_cast<std::size_t>(TickIssue::by_power)] > 0;
    RC_ASSERT((!broken || ((!tick->tick.energy_mj || by_power) && !tick->reason().empty())));
    const auto split = allocate_energy(tick->tick, method->step(tick->tick), IdleRule::by_slice);
    if (split && !by_power) got += sum_of(*split);
  }
  RC_ASSERT(got == wanted);
}

// The counter of a driver that takes long for it, read each fifth tick: the ticks between have
// energy by power, which counts as the counter's, and together they are what it says.
TEST(TickSource, ACounterThatIsNotDueIsNotMissing) {
  TickSource source;
  std::int64_t given = 0;
  Instant time{}, read{};
  constexpr double kWatts = 400, kPowerIsOff = 1.02;
  for (int i = 0; i <= 100; ++i, time += std::chrono::seconds(1)) {
    if (i % 5 == 0) read = time;
    Tenancy now;
    now.board.time = time;
    now.board.power_instant = Watts(kPowerIsOff * kWatts);
    now.board.energy = Joules(1000 + kWatts * seconds(read.time_since_epoch()));
    if (read != time) now.board.read_apart = {{Field::energy, read, "nvml"}};
    const auto tick = source.next(now, {});
    if (!tick) continue;
    given += *tick->tick.energy_mj;
    EXPECT_EQ(tick->reason(), "") << i;
    EXPECT_NEAR(static_cast<double>(*tick->tick.energy_mj), 1000 * kWatts, 45'000) << i;
    ASSERT_TRUE(tick->counter_mj);
    EXPECT_EQ(*tick->counter_mj, 1'000'000 + given) << i;
  }
  // But for the last part of what the last reading said.
  EXPECT_NEAR(static_cast<double>(given), 100 * 1000 * kWatts, 60'000);
}

// The energy of a pause is of the tick after it, not of the seconds that follow.
TEST(TickSource, APauseBetweenReadingsOfADearCounterIsOneTick) {
  TickSource source;
  Instant time{}, read{};
  constexpr double kWatts = 70;
  const auto next = [&](Duration after, bool reads) {
    time += after;
    if (reads) read = time;
    Tenancy now;
    now.board.time = time;
    now.board.power_instant = Watts(kWatts);
    now.board.energy = Joules(1000 + kWatts * seconds(read.time_since_epoch()));
    if (read != time) now.board.read_apart = {{Field::energy, read, "nvml"}};
    return source.next(now, {});
  };
  for (int i = 0; i < 23; ++i) next(std::chrono::seconds(1), i % 5 == 0);
  const auto pause = next(std::chrono::hours(1), true);
  EXPECT_NEAR(static_cast<double>(*pause->tick.energy_mj), 3600 * 1000 * kWatts, 200'000);
  for (int i = 1; i < 10; ++i)
    EXPECT_NEAR(static_cast<double>(*next(std::chrono::seconds(1), i % 5 == 0)->tick.energy_mj),
                1000 * kWatts, 20'000);
}

// Without a counter: no part of a millijoule is lost on the way.
RC_GTEST_PROP(TickSource, PowerTimesTimeKeepsItsRemainder, ()) {
  TickSource source;
  double exact = 0;
  std::int64_t sum = 0;
  std::optional<double> before;
  Instant time{};
  for (int i = 0; i < 60; ++i) {
    const int step_ms = *rc::gen::inRange(1, 2000);
    time += std::chrono::milliseconds(step_ms);
    const double watts = *rc::gen::inRange(0, 7000) / 10.0;
    Tenancy now;
    now.board.time = time;
    now.board.power_instant = Watts(watts);
    if (const auto tick = source.next(now, {})) {
      RC_ASSERT(tick->issues[static_cast<std::size_t>(TickIssue::by_power)] == 1u);
      sum += tick->tick.energy_mj.value();
      exact += (watts + *before) / 2 * step_ms;
      RC_ASSERT(std::abs(static_cast<double>(sum) - exact) <= 1.01);
    }
    before = watts;
  }
}

Tenancy reading(double at_s, std::optional<double> joules) {
  Tenancy out;
  out.board.time = Instant{} + from_seconds(at_s);
  if (joules) out.board.energy = Joules(*joules);
  return out;
}

TEST(TickSource, MissedReadingMakesALongerTick) {
  TickSource source;
  EXPECT_FALSE(source.next(reading(1, 100), {}));
  const auto tick = source.next(reading(4, 100.75), {});
  ASSERT_TRUE(tick);
  EXPECT_EQ(tick->tick.length, std::chrono::seconds(3));
  EXPECT_EQ(tick->tick.energy_mj, 750);
  EXPECT_EQ(tick->reason(), "");
}

Tenancy drawing(double at_s, double watts, std::optional<double> joules) {
  Tenancy out = reading(at_s, joules);
  out.board.power_usage = Watts(watts);
  return out;
}
bool has_issue(const std::optional<SourcedTick>& tick, TickIssue issue) {
  return tick && tick->issues[static_cast<std::size_t>(issue)] > 0;
}

// The tenants of a board that draws 700 W do not use 0 J.
TEST(TickSource, ACounterThatStandsStillIsMissing) {
  TickSource source;
  std::int64_t sum = 0;
  std::optional<SourcedTick> tick;
  for (int s = 0; s <= 30; ++s)
    if ((tick = source.next(drawing(s, 700, 5000), {}))) sum += tick->tick.energy_mj.value_or(0);
  EXPECT_EQ(sum, 30 * 700'000);
  EXPECT_TRUE(has_issue(tick, TickIssue::counter_still) && has_issue(tick, TickIssue::by_power));
  // The counter moves again: the first step is by power, the next ones by the counter.
  for (int s = 31; s <= 40; ++s)
    if ((tick = source.next(drawing(s, 700, 5000 + 700 * (s - 30)), {})))
      sum += tick->tick.energy_mj.value_or(0);
  EXPECT_EQ(sum, 40 * 700'000);
  EXPECT_FALSE(has_issue(tick, TickIssue::by_power));
}

// Energy in a step of the counter that comes a second late is counted once.
TEST(TickSource, WhatPowerSaidBeforehandIsTakenOffTheCounter) {
  TickSource source;
  std::int64_t sum = 0;
  const double joules[] = {0, 700, 700, 2100, 2100, 3500, 4200};
  for (int s = 0; s <= 6; ++s)
    if (const auto tick = source.next(drawing(s, 700, joules[s]), {}))
      sum += tick->tick.energy_mj.value_or(0);
  EXPECT_EQ(sum, 4'200'000);
}

// A sound counter with steps of 2 s does not differ from the power.
TEST(TickSource, ALateCounterIsComparedOverItsWholeSteps) {
  TickSource source;
  std::int64_t sum = 0;
  for (int s = 0; s <= 130; ++s) {
    const auto tick = source.next(drawing(s, 700, 700.0 * (s / 2 * 2)), {});
    if (!tick) continue;
    sum += tick->tick.energy_mj.value_or(0);
    EXPECT_FALSE(has_issue(tick, TickIssue::counter_differs)) << s;
  }
  EXPECT_EQ(sum, 130 * 700'000);
}

// At any reading interval, the energy drawn before a stopped counter is known to stand still is
// billed.
TEST(TickSource, NothingOfAStopIsLostBetweenTheReadings) {
  for (const double every_s : {0.2, 0.3, 0.7, 1.0, 1.3, 2.0}) {
    TickSource source;
    double sum = 0, end = 0;
    for (int i = 0; i * every_s <= 60; ++i) {
      end = i * every_s;
      // The counter counts for 10 s, and again from 40 s on.
      const double counted = 700 * (std::min(end, 10.0) + std::max(0.0, end - 40));
      if (const auto tick = source.next(drawing(end, 700, counted), {}))
        sum += static_cast<double>(tick->tick.energy_mj.value_or(0)) / 1000;
    }
    EXPECT_NEAR(sum, 700 * end, 700 * every_s) << every_s;
  }
  TickSource source;  // the counter steps every 5 s
  double sum = 0;
  for (int i = 0; i <= 300; ++i)
    if (const auto tick = source.next(drawing(0.2 * i, 700, 3500.0 * (i / 25)), {}))
      sum += static_cast<double>(tick->tick.energy_mj.value_or(0)) / 1000;
  EXPECT_NEAR(sum, 700 * 60, 0.02 * 700 * 60);
}

// A counter that shows a tenth of the energy does not reduce the bill of later work forever.
TEST(TickSource, PowerIsNotAheadOfTheCounterForLongerThanItMayStandStill) {
  TickSource source;
  std::int64_t later = 0;
  double counted = 0;
  for (int s = 0; s <= 3630; ++s) {
    counted += s <= 3600 ? (s % 2 == 0 ? 140 : 0) : 700;
    const auto tick = source.next(drawing(s, 700, counted), {});
    if (s > 3600) later += tick->tick.energy_mj.value_or(0);
  }
  EXPECT_GE(later, 26 * 700'000);  // at most 3 s of power are taken off
}

TEST(TickSource, PowerStandsInWhereTheCounterCannotTell) {
  TickSource source;
  source.next(drawing(0, 100, 5000), {});
  EXPECT_EQ(source.next(drawing(1, 100, {}), {})->tick.energy_mj, 100'000);
  EXPECT_EQ(source.next(drawing(2, 100, 1), {})->tick.energy_mj, 100'000);
  EXPECT_EQ(source.next(drawing(3, 100, 0.5), {})->tick.energy_mj, 100'000);
  EXPECT_EQ(source.next(drawing(4, 100, 1e9), {})->tick.energy_mj, 100'000);
}

TEST(TickSource, ACounterThatDiffersFromThePowerIsReported) {
  TickSource source;
  std::optional<SourcedTick> tick;
  for (int s = 0; s <= 61; ++s) tick = source.next(drawing(s, 100, 57.0 * s), {});
  EXPECT_TRUE(has_issue(tick, TickIssue::counter_differs));
  EXPECT_EQ(tick->tick.energy_mj, 57'000);
}

// If the GPU works and no process has a sample, evidence is missing, and the use is not equal.
TEST(TickSource, AnUnsampledTickIsOneOfSeveralProcessesOnABusyGpu) {
  TickSource source;
  source.next(reading(0, 0), {});
  const TenantKeys keys{{}, {"7", "8"}};
  int at = 0;
  const auto next = [&](std::vector<GpuProcess> processes, double busy) {
    ++at;
    Tenancy now = reading(at, 100 * at);
    now.board.gpu_utilisation = Fraction(busy);
    now.processes = std::move(processes);
    return source.next(now, keys)->tick.unsampled;
  };
  const GpuProcess idle{.pid = 7, .sm_utilisation = Fraction(0)};
  const GpuProcess other{.pid = 8, .sm_utilisation = Fraction(0)};
  const GpuProcess works{.pid = 8, .sm_utilisation = Fraction(0.4)};
  EXPECT_TRUE(next({idle, other}, 0.99));
  EXPECT_TRUE(next({{.pid = 7}, {.pid = 8}}, 0.99));
  EXPECT_TRUE(next({{.pid = 7}, works}, 0.99));
  EXPECT_FALSE(next({idle, works}, 0.99));
  EXPECT_FALSE(next({idle, other}, 0.02));
  EXPECT_FALSE(next({idle}, 0.99));
}

TEST(TickSource, JumpThatNoBoardDrawsIsNoEnergy) {
  TickSource source;
  source.next(reading(1, 100), {});
  const auto jumped = source.next(reading(2, 1e6), {});
  EXPECT_FALSE(jumped->tick.energy_mj);
  EXPECT_EQ(jumped->reason(), "the energy counter jumped");
  EXPECT_EQ(source.next(reading(3, 1e6 + 1), {})->tick.energy_mj, 1000);
}

TEST(TickSource, ReadingOutOfOrderIsLeftOut) {
  TickSource source;
  source.next(reading(2, 100), {});
  EXPECT_FALSE(source.next(reading(2, 90), {}));
  EXPECT_FALSE(source.next(reading(1, 90), {}));
  EXPECT_EQ(source.issues()[static_cast<std::size_t>(TickIssue::time_back)], 2u);
  EXPECT_EQ(source.next(reading(3, 101), {})->tick.energy_mj, 1000);
}

TEST(TickSource, InstancesHaveTheirMultiprocessorsAndProcesses) {
  TickSource source;
  source.next(reading(1, 100), {});
  Tenancy now = reading(2, 300);
  now.mig = true;
  now.slices = 7;
  now.memory_slices = 8;
  now.multiprocessors = 132;
  now.instances = {{.id = 1, .slices = 1, .memory_slices = 1, .multiprocessors = 16},
                   {.id = 2, .slices = 3, .memory_slices = 4, .multiprocessors = 60},
                   {.id = 3, .slices = 1, .memory_slices = 1, .multiprocessors = 16}};
  now.instances[1].activity.sm = Fraction(0.5);
  now.processes = {{.pid = 7, .gpu_instance = 1}, {.pid = 9}};
  now.board.throttle_reasons = throttle::kSwPowerCap | throttle::kGpuIdle;
  const auto tick = source.next(now, {{"x", "y", "z"}, {}})->tick;
  ASSERT_EQ(tick.tenants.size(), 3u);
  EXPECT_GT(tick.capped.value(), 0);
  EXPECT_EQ(tick.tenants[0].share, Fraction(16.0 / 132));
  EXPECT_EQ(tick.tenants[1].memory_share, Fraction(0.5));
  EXPECT_EQ(tick.tenants[0].signal, SignalKind::allocation);
  EXPECT_EQ(tick.tenants[1].signal, SignalKind::instance_activity);
  EXPECT_TRUE(tick.tenants[0].context);   // a process
  EXPECT_TRUE(tick.tenants[1].context);   // activity, with no process that may be seen
  EXPECT_FALSE(tick.tenants[2].context);  // nobody
}

TEST(TickSource, ProcessesHaveUtilisationOnceTheDriverTellsAny) {
  TickSource source;
  source.next(reading(1, 100), {});
  Tenancy now = reading(2, 300);
  now.processes = {{.pid = 7}, {.pid = 8}};
  const TenantKeys keys{{}, {"7", "8"}};
  EXPECT_EQ(source.next(now, keys)->tick.tenants[0].signal, SignalKind::allocation);
  now.board.time += std::chrono::seconds(1);
  now.processes[1].sm_utilisation = Fraction(1.4);
  const auto told = source.next(now, keys);
  EXPECT_EQ(told->tick.tenants[0].signal, SignalKind::process_utilisation);
  EXPECT_EQ(told->tick.tenants[1].sm_utilisation, Fraction(1));
  EXPECT_EQ(told->reason(), "counters above 100 %");
  now.board.time += std::chrono::seconds(1);
  now.processes = {{.pid = 7}};
  const auto idle = source.next(now, keys);
  EXPECT_EQ(idle->tick.tenants[0].signal, SignalKind::process_utilisation);
  EXPECT_EQ(idle->reason(), "tenants ended");
}

}  // namespace
}  // namespace derate
