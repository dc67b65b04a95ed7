#include "attrib/process_split.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>

namespace derate {
namespace {

constexpr double kBaseW = 80, kContextW = 47;
const BoardFacts kHopper{.chip = "H200", .highest_clock = Megahertz(1980)};

// Processes with the GPU for those parts of a second, each with watts of its own, as an H200's
// driver counts them: five samples, each one process's.
struct Seconds {
  std::vector<double> watts;
  std::mt19937_64 random{3};
  double base_w = kBaseW;

  AttribTick tick(const std::vector<double>& shares) {
    AttribTick out{.length = std::chrono::seconds(1), .sm_clock = Megahertz(1980)};
    double watts_now = base_w + (shares.empty() ? 0 : kContextW), busy = 0;
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

// The cost of contexts that do nothing for one that works, in 15 minutes, of its energy. `worked`:
// they did for half a minute.
double cost_of_parked(std::size_t parked, double busy, bool worked) {
  Seconds world{.watts = std::vector<double>(parked + 1, 300.0)};
  const auto method = make_process_split(kHopper);
  double own = 0, all = 0;
  for (int i = 0; i < 900; ++i) {
    std::vector<double> shares(parked + 1, 0);
    const bool together = worked && i < 30;
    if (together) shares.assign(parked + 1, busy / static_cast<double>(parked + 1));
    if (!together) shares[0] = busy;
    const PowerEstimate now = method->step(world.tick(shares));
    if (together) continue;
    for (const TenantEstimate& one : now.tenants) all += one.dynamic.value();
    own += now.tenants[0].dynamic.value();
  }
  return 1 - own / all;
}

TEST(ProcessSplit, ParkedContextsCostTheWorkerNothing) {
  for (const double busy : {0.05, 0.4, 1.0}) {
    EXPECT_LT(cost_of_parked(64, busy, false), 1e-6) << busy;
    for (const std::size_t parked : {1, 5})
      EXPECT_LT(cost_of_parked(parked, busy, true), 0.01) << parked << ' ' << busy;
  }
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

// Two that always work and were never apart: only what their programs drew before says which draws
// more. A wrong expectation is forgotten when one of them works alone.
TEST(ProcessSplit, AProcessBeginsAtWhatIsExpectedOfIt) {
  const auto first_part = [](const std::vector<std::optional<Belief>>& expected, bool apart) {
    Seconds world{.watts = {150, 450}};
    const auto method = make_process_split(kHopper);
    double out = 0;
    for (int i = 0; i < 180; ++i) {
      const bool alone = apart && i % 60 < 20;
      AttribTick tick = world.tick({alone ? 1.0 : 0.5, alone ? 0.0 : 0.5});
      for (std::size_t k = 0; k < expected.size(); ++k) tick.tenants[k].expected_w = expected[k];
      const PowerEstimate now = method->step(tick);
      if (i >= 120 && !alone) out += part_of_first(now) / 40;
    }
    return apart ? out : out * 40 / 60;
  };
  const double equal = first_part({}, false);
  const double known = first_part({Belief{150, 40}, Belief{450, 100}}, false);
  EXPECT_NEAR(equal, 0.5, 0.1);
  EXPECT_NEAR(known, 0.25, 0.08);
  const double wrong = first_part({Belief{450, 100}, Belief{150, 40}}, true);
  EXPECT_NEAR(wrong, first_part({}, true), 0.05);
}

// Never alone and always the same: who draws how much is the prior's guess, and the band says so.
TEST(ProcessSplit, WhatCannotBeToldHasAWideBand) {
  Seconds world{.watts = {450, 150}};
  const auto method = make_process_split(kHopper);
  PowerEstimate now;
  for (int i = 0; i < 300; ++i) now = method->step(world.tick({0.5, 0.5}));
  const double off = std::abs(now.tenants[0].dynamic.value() - 225);
  EXPECT_LT(off, 2 * now.tenants[0].sigma->value());
  EXPECT_GT(now.tenants[0].prior_share->value(), 0.4);
}

// The base is learned while nobody is there, and the context when the first comes.
TEST(ProcessSplit, AnIdleGpuTeachesTheBase) {
  Seconds world{.watts = {300}};
  world.base_w = 110;
  const auto method = make_process_split({.chip = "unheard of", .highest_clock = Megahertz(1980)});
  PowerEstimate now;
  for (int i = 0; i < 60; ++i) now = method->step(world.tick({}));
  EXPECT_NEAR(now.base.value(), 110, 1);
  for (int i = 0; i < 60; ++i) now = method->step(world.tick({i % 20 < 10 ? 1.0 : 0.0}));
  EXPECT_NEAR(now.base.value(), 110, 4);
  EXPECT_NEAR(now.context.value(), kContextW, 6);
}

// With nothing of it given away afterwards, the estimates themselves add up to what was drawn.
TEST(ProcessSplit, EstimatesAddUpToWhatWasDrawn) {
  Seconds world{.watts = {450, 150, 300}};
  const auto method = make_process_split(kHopper);
  double off = 0, bias = 0, all = 0;
  for (int i = 0; i < 400; ++i) {
    const double first = 0.1 + 0.2 * (i % 4);
    const PowerEstimate now = method->step(world.tick({first, 0.7 - first, 0.1}));
    if (i < 30) continue;
    double sum = now.base.value() + now.context.value();
    for (const TenantEstimate& one : now.tenants) sum += one.dynamic.value();
    const double truth = kBaseW + kContextW + first * 450 + (0.7 - first) * 150 + 0.1 * 300;
    off += std::abs(sum - truth), bias += sum - truth, all += truth;
  }
  EXPECT_LT(off, 0.06 * all);
  EXPECT_LT(std::abs(bias), 0.02 * all);
}

// Another process in the place of one that ended is another: nothing of the first one's is its own.
TEST(ProcessSplit, ASuccessorIsNotItsPredecessor) {
  Seconds world{.watts = {400, 200}};
  const auto method = make_process_split(kHopper);
  const auto step = [&](int i, const char* first) {
    AttribTick tick = world.tick({i % 20 < 10 ? 1.0 : 0.0, i % 20 < 10 ? 0.0 : 1.0});
    tick.tenants[0].key = first;
    return method->step(tick);
  };
  PowerEstimate before, after;
  for (int i = 0; i < 210; ++i) before = step(i, "one");
  world.watts[0] = 100;
  for (int i = 210; i < 220; ++i) after = step(i, "another");  // and does nothing yet
  EXPECT_LT(before.tenants[0].prior_share->value(), 0.3);
  EXPECT_EQ(after.tenants[0].dynamic.value(), 0);
  after = step(220, "another");
  EXPECT_NEAR(after.tenants[0].dynamic.value(), 100, 60);
  for (int i = 221; i < 400; ++i) after = step(i, "another");
  for (int i = 400; i < 405; ++i) after = step(i, "another");
  EXPECT_NEAR(after.tenants[0].dynamic.value(), 100, 15);
}

// The driver names nobody, or another PID: that says nothing of who works.
TEST(ProcessSplit, TicksWithoutSamplesTeachNothing) {
  const auto estimate_after = [](int unsampled) {
    Seconds world{.watts = {400, 200}};
    const auto method = make_process_split(kHopper);
    const auto shares = [](int i) {
      return i % 20 < 10 ? std::vector<double>{1, 0} : std::vector<double>{0, 1};
    };
    for (int i = 0; i < 100; ++i) method->step(world.tick(shares(i)));
    for (int i = 0; i < unsampled; ++i) {
      AttribTick tick = world.tick({1, 0});
      tick.unsampled = true;
      tick.energy_mj.reset();
      EXPECT_EQ(method->step(tick).tenants.size(), 2u);
    }
    world.random.seed(9);
    return method->step(world.tick({0.5, 0.5})).tenants[0].dynamic.value();
  };
  EXPECT_EQ(estimate_after(0), estimate_after(30));
}

// Under the power limit the sum says little of who draws it: watts that were learned stay.
TEST(ProcessSplit, ThePowerLimitTeachesLittle) {
  Seconds world{.watts = {400, 200}};
  const auto method = make_process_split(kHopper);
  for (int i = 0; i < 200; ++i)
    method->step(world.tick({i % 20 < 10 ? 1.0 : 0.0, i % 20 < 10 ? 0.0 : 1.0}));
  world.watts = {150, 150};
  for (int i = 0; i < 20; ++i) {
    AttribTick capped = world.tick({1, 0});
    capped.capped = Fraction(1);
    method->step(capped);
  }
  world.watts = {400, 200};
  EXPECT_NEAR(method->step(world.tick({1, 0})).tenants[0].dynamic.value(), 400, 30);
}

// All that the base and the contexts leave is the only one's that works, however little is known of
// its watts. Of two that work, each may have drawn more or less of it.
TEST(ProcessSplit, OneAloneUnderThePowerLimitIsKnown) {
  const auto after_minutes = [](const std::vector<double>& watts, const std::vector<double>& time) {
    Seconds world{.watts = watts};
    const auto method = make_process_split(kHopper);
    PowerEstimate out;
    for (int i = 0; i < 120; ++i) {
      AttribTick tick = world.tick(time);
      tick.capped = Fraction(1);
      tick.sm_clock = Megahertz(1400);
      out = method->step(tick);
    }
    return out.tenants[0];
  };
  const TenantEstimate alone = after_minutes({500, 0}, {1, 0});
  EXPECT_LT(*alone.sigma, Watts(25));
  EXPECT_LT(alone.prior_share->value(), 0.1);
  const TenantEstimate two = after_minutes({300, 200}, {0.5, 0.5});
  EXPECT_GT(*two.sigma, Watts(30));
  EXPECT_GT(two.prior_share->value(), 0.3);
}

TEST(ProcessSplit, TicksWithoutEnergyAreEstimatedAndTeachNothing) {
  Seconds world{.watts = {400, 200}};
  const auto method = make_process_split(kHopper);
  for (int i = 0; i < 100; ++i) {
    const AttribTick tick = world.tick({i % 20 < 10 ? 1.0 : 0.0, i % 20 < 10 ? 0.0 : 1.0});
    method->step(tick);
  }
  AttribTick lost = world.tick({1, 0});
  lost.energy_mj.reset();
  EXPECT_NEAR(method->step(lost).tenants[0].dynamic.value(), 400, 40);
}

}  // namespace
}  // namespace derate
