#include "attrib/process_split.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>

#include "attrib/allocate_energy.h"

namespace derate {
namespace {

constexpr double kBaseW = 80, kContextW = 47;
const BoardFacts kHopper{.chip = "H200", .highest_clock = Megahertz(1980)};

// Processes with the GPU for those parts of a second, each with watts of its own, as an H200's
// driver counts them: five samples, each one process's.
struct Seconds {
  std::vector<double> watts;
  std::mt19937_64 random{3};

  AttribTick tick(const std::vector<double>& shares) {
    AttribTick out{.length = std::chrono::seconds(1), .sm_clock = Megahertz(1980)};
    double watts_now = kBaseW + kContextW, busy = 0;
    std::vector<int> samples(shares.size(), 0);
    for (std::size_t k = 0; k < shares.size(); ++k)
      watts_now += shares[k] * watts[k], busy += shares[k];
    std::discrete_distribution<std::size_t> whose(shares.begin(), shares.end());
    for (int i = 0; i < 5 && busy > 0; ++i) ++samples[whose(random)];
    for (std::size_t k = 0; k < shares.size(); ++k)
      out.tenants.push_back({.key = std::to_string(k),
                             .signal = SignalKind::process_utilisation,
                             .sm_utilisation = Fraction(samples[k] * busy / 5)});
    out.energy_mj = std::llround(1000 * watts_now);
    return out;
  }
};

double part_of_first(const PowerEstimate& estimate) {
  double all = 0;
  for (const TenantEstimate& one : estimate.tenants) all += one.dynamic.value();
  return estimate.tenants[0].dynamic.value() / all;
}

// One works and the other's context is parked: it gets all that is drawn, at once after a turn.
TEST(ProcessSplit, WhoWorksAloneGetsAll) {
  Seconds world{.watts = {400, 200}};
  const auto method = make_process_split(kHopper);
  double sum = 0;
  int ticks = 0;
  for (int i = 0; i < 240; ++i) {
    const bool first = i / 15 % 2 == 0;
    const double part =
        part_of_first(method->step(world.tick({first ? 1.0 : 0.0, first ? 0.0 : 1.0})));
    if (i >= 30) sum += first ? part : 1 - part, ++ticks;
  }
  EXPECT_GT(sum / ticks, 0.97);
}

TEST(ProcessSplit, ALightProcessPaysForWhatItDoes) {
  Seconds world{.watts = {300, 300}};
  const auto method = make_process_split(kHopper);
  double light = 0, all = 0;
  for (int i = 0; i < 600; ++i) {
    const PowerEstimate now = method->step(world.tick({0.08, 0.85}));
    if (i < 60) continue;
    light += now.tenants[0].dynamic.value();
    all += now.tenants[0].dynamic.value() + now.tenants[1].dynamic.value();
  }
  EXPECT_NEAR(light / all, 0.08 / 0.93, 0.03);
}

// Samples of a second tell 0.2 of the share at best; the power tells it once the watts are known.
TEST(ProcessSplit, PowerTellsWhoRanInASecond) {
  Seconds world{.watts = {450, 150}};
  const auto method = make_process_split(kHopper);
  for (int i = 0; i < 60; ++i)
    method->step(world.tick({i % 20 < 10 ? 1.0 : 0.0, i % 20 < 10 ? 0.0 : 1.0}));
  double off = 0, read_off = 0;
  std::mt19937_64 random(11);
  for (int i = 0; i < 120; ++i) {
    const double first = std::uniform_real_distribution<double>(0, 1)(random);
    const AttribTick tick = world.tick({first, 1 - first});
    const double truth = 450 * first, read = tick.tenants[0].sm_utilisation->value();
    const PowerEstimate now = method->step(tick);
    if (i < 30) continue;
    off += std::abs(now.tenants[0].dynamic.value() - truth);
    read_off += std::abs(450 * read - truth);
  }
  EXPECT_LT(off, 0.5 * read_off);
}

// Never alone and always the same: who draws how much is the prior's guess, and the band says so.
TEST(ProcessSplit, WhatCannotBeToldHasAWideBand) {
  Seconds world{.watts = {450, 150}};
  const auto method = make_process_split(kHopper);
  PowerEstimate now;
  for (int i = 0; i < 300; ++i) now = method->step(world.tick({0.5, 0.5}));
  const double off = std::abs(now.tenants[0].dynamic.value() - 225);
  EXPECT_LT(off, 2 * now.tenants[0].sigma->value());
  EXPECT_GT(now.tenants[0].prior_share->value(), 0.3);
}

TEST(ProcessSplit, AllThatWasDrawnIsSomebodys) {
  Seconds world{.watts = {450, 150, 300}};
  const auto method = make_process_split(kHopper);
  for (int i = 0; i < 50; ++i) {
    const AttribTick tick = world.tick({0.3, 0.2, 0.1});
    const auto split = allocate_energy(tick, method->step(tick), IdleRule::unallocated);
    std::int64_t sum = split->unallocated_mj;
    for (const TenantEnergy& tenant : split->tenants) sum += tenant.total_mj();
    ASSERT_EQ(sum, *tick.energy_mj);
  }
}

}  // namespace
}  // namespace derate
