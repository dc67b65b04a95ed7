#include "policy/published/published.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using Kind = Decision::Kind;

// Work whose power and memory utilisation follow the clock; GPU utilisation is 100 %.
struct Work {
  Watts power{};
  Fraction memory{};
};
using WorkAt = std::function<Work(Megahertz)>;

// A policy on a V100 that does `work`.
class UcbRig {
 public:
  UcbRig(WorkAt work, const std::vector<std::string>& params)
      : policy_(*make_test_policy("energy-ucb", kV100, params)),
        envelope_(test_envelope(kV100)),
        work_(std::move(work)) {}

  Decision decide(const Estimate& estimate) { return policy_->decide(estimate, envelope_); }
  Megahertz tick() {
    Estimate estimate = test_reading(clock_.value(), 100, 0, 0);
    const Work work = work_(clock_);
    estimate.power = work.power;
    estimate.memory_utilisation = work.memory;
    const Decision decision = decide(estimate);
    EXPECT_EQ(decision.kind, Kind::set);
    return clock_ = decision.clock;
  }
  std::vector<Megahertz> ticks(int count) {
    std::vector<Megahertz> clocks;
    for (int i = 0; i < count; ++i) clocks.push_back(tick());
    return clocks;
  }
  void narrow(Megahertz highest) {
    const Envelope full = test_envelope(kV100);
    envelope_ = *Envelope::create(full.clocks(), full.lowest(), highest);
  }

 private:
  std::unique_ptr<Policy> policy_;
  Envelope envelope_;
  WorkAt work_;
  Megahertz clock_{1530};
};

int switches(const std::vector<Megahertz>& clocks) {
  int count = 0;
  for (std::size_t i = 1; i < clocks.size(); ++i) count += clocks[i] != clocks[i - 1] ? 1 : 0;
  return count;
}

// Power and memory utilisation drawn for each clock at its first use, then the same for ever.
WorkAt random_work(unsigned seed) {
  return [seed, known = std::map<Megahertz, Work>{}](Megahertz clock) mutable {
    if (const auto at = known.find(clock); at != known.end()) return at->second;
    std::mt19937_64 random(seed + static_cast<unsigned>(clock.value()));
    const auto n = [&](int from, int to) {
      return from + static_cast<int>(random() % static_cast<unsigned>(to - from));
    };
    const Watts power(n(50, 300));
    return known[clock] = {power, percent(n(5, 101))};
  };
}

// 250 W at the top; memory utilisation as the clock.
Work compute(Megahertz clock) {
  const double share = clock / Megahertz(1530);
  return {Watts(50 + 200 * share * share * share), Fraction(0.8 * share)};
}
// The same power, memory as good at every clock.
Work memory(Megahertz clock) { return {compute(clock).power, Fraction(0.8)}; }

// Optimism: each clock once, from the highest, before any comes again.
RC_GTEST_PROP(EnergyUcbProperty, TriesEachClockOnceFirst, (unsigned seed)) {
  const int arms = *rc::gen::inRange(2, 30);
  UcbRig rig(random_work(seed), {"arms=" + std::to_string(arms)});
  const auto clocks = rig.ticks(arms);
  RC_ASSERT(clocks.front() == Megahertz(1530));
  RC_ASSERT(clocks.back() == Megahertz(952));
  RC_ASSERT(std::is_sorted(clocks.rbegin(), clocks.rend()));
  RC_ASSERT(std::set(clocks.begin(), clocks.end()).size() == static_cast<std::size_t>(arms));
}

// Without noise a clock that is g J worse is tried at most ln t / g^2 + 1 times (its index passes
// the best's no more), plus one first try: for 4 clocks, t = 3000, g = 1 J less than 3 x 11 ticks.
RC_GTEST_PROP(EnergyUcbProperty, SettlesOnTheBestClockOfStationaryWork, (unsigned seed)) {
  const WorkAt work = random_work(seed);
  UcbRig rig(work, {"delta=1", "arms=4", "lambda=0"});
  const auto clocks = rig.ticks(3000);
  const std::set<Megahertz> arms(clocks.begin(), clocks.end());
  const auto cost = [&](Megahertz clock) {
    const Work at = work(clock);
    return at.power.value() * 0.01 / at.memory.value();
  };
  const auto cheaper = [&](Megahertz a, Megahertz b) { return cost(a) < cost(b); };
  const Megahertz best = *std::min_element(arms.begin(), arms.end(), cheaper);
  const auto clear = [&](Megahertz clock) { return clock == best || cost(clock) > cost(best) + 1; };
  RC_PRE(std::all_of(arms.begin(), arms.end(), clear));
  RC_ASSERT(std::count(clocks.begin(), clocks.end(), best) >= 3000 - 33);
}

// Where progress shows without noise, no clock outside the bound comes after its first try.
RC_GTEST_PROP(EnergyUcbProperty, KeepsTheBoundOnWhatItSees, (unsigned seed)) {
  const double delta = *rc::gen::inRange(0, 101) / 100.0;
  const WorkAt work = random_work(seed);
  UcbRig rig(work, {"delta=" + std::to_string(delta)});
  rig.ticks(9);
  const double top = work(Megahertz(1530)).memory.value();
  for (const Megahertz clock : rig.ticks(300))
    RC_ASSERT(1 - work(clock).memory.value() / top <= delta + 1e-9);
}

RC_GTEST_PROP(EnergyUcbProperty, TheSameReadingsGiveTheSameDecisions, (unsigned seed)) {
  UcbRig one(random_work(seed), {}), other(random_work(seed), {});
  RC_ASSERT(one.ticks(200) == other.ticks(200));
}

TEST(EnergyUcb, TakesNineClocksEvenlySpacedUnlessToldOtherwise) {
  UcbRig rig(compute, {});
  const auto clocks = rig.ticks(9);
  for (std::size_t i = 1; i < 9; ++i)
    EXPECT_NEAR((clocks[i - 1] - clocks[i]).value(), 578.0 / 8, 7.5);
}

TEST(EnergyUcb, LowersTheClockOfMemoryBoundWorkOnly) {
  for (const auto& [work, delta, least, most] : {std::tuple(WorkAt(compute), 0.1, 1380, 1530),
                                                 {memory, 0.1, 952, 1030},
                                                 {memory, 0.0, 952, 1030},
                                                 {compute, 0.0, 1530, 1530},
                                                 {compute, 1.0, 952, 1100}}) {
    UcbRig rig(work, {"delta=" + std::to_string(delta)});
    rig.ticks(2000);
    std::map<Megahertz, int> uses;
    for (const Megahertz clock : rig.ticks(1000)) ++uses[clock];
    const auto more = [](const auto& a, const auto& b) { return a.second < b.second; };
    const Megahertz favourite = std::max_element(uses.begin(), uses.end(), more)->first;
    EXPECT_GE(favourite, Megahertz(least)) << delta;
    EXPECT_LE(favourite, Megahertz(most)) << delta;
  }
}

TEST(EnergyUcb, APenaltyKeepsTheClock) {
  EXPECT_EQ(switches(UcbRig(compute, {"lambda=1000"}).ticks(500)), 0);
  // With noise of 10 % in the power; seed fixed, switches in 1000 ticks: 330, 60, 28.
  const auto noisy = [] {
    return [random = std::mt19937_64(7)](Megahertz clock) mutable {
      Work work = memory(clock);
      work.power = work.power * std::normal_distribution(1.0, 0.1)(random);
      return work;
    };
  };
  const int none = switches(UcbRig(noisy(), {"lambda=0"}).ticks(1000));
  const int some = switches(UcbRig(noisy(), {"lambda=0.1"}).ticks(1000));
  const int much = switches(UcbRig(noisy(), {"lambda=0.5"}).ticks(1000));
  EXPECT_LT(some, none / 2) << none;
  EXPECT_LT(much, some);
  EXPECT_GE(much, 8);  // each clock once all the same
}

TEST(EnergyUcb, HoldsAndLearnsNothingWithoutAReadingOrAKernel) {
  UcbRig rig(compute, {"arms=2"}), other(compute, {"arms=2"});
  EXPECT_EQ(rig.tick(), Megahertz(1530));
  EXPECT_EQ(rig.decide(test_reading(1530, 0, 0, 60)).kind, Kind::hold);
  for (auto field : {0, 1, 2}) {
    Estimate estimate = test_reading(1530, 100, 50, 200);
    if (field == 0) estimate.gpu_utilisation.reset();
    if (field == 1) estimate.memory_utilisation.reset();
    if (field == 2) estimate.power.reset();
    EXPECT_EQ(rig.decide(estimate).kind, Kind::hold);
  }
  // The first reading after the pause is of two minds: it counts for no clock.
  EXPECT_EQ(rig.tick(), Megahertz(1530));
  EXPECT_EQ(other.tick(), Megahertz(1530));
  EXPECT_EQ(rig.ticks(50), other.ticks(50));
}

// Work that touches no memory shows no progress: the bound is blind, the cheapest clock comes.
TEST(EnergyUcb, DoesNotSeeWorkWithoutMemoryTraffic) {
  UcbRig rig([](Megahertz clock) { return Work{compute(clock).power, Fraction(0)}; }, {});
  EXPECT_EQ(rig.ticks(200).back(), Megahertz(952));
}

TEST(EnergyUcb, TakesTheHighestAllowedWhenHeatLeavesNoFeasibleClock) {
  UcbRig rig(compute, {});
  rig.ticks(20);
  rig.narrow(Megahertz(1200));
  const auto clocks = rig.ticks(20);
  EXPECT_EQ(switches(clocks), 0);
  EXPECT_NEAR(clocks[0].value(), 1168, 7.5);  // the fourth of nine; the envelope ends at 1200
}

TEST(EnergyUcb, TellsThePerformanceItBelievesIn) {
  auto policy = *make_test_policy("energy-ucb", kV100, {"arms=2", "delta=1", "alpha=0"});
  const Envelope envelope = test_envelope(kV100);
  policy->decide(test_reading(1530, 100, 80, 300), envelope);
  policy->decide(test_reading(1530, 100, 80, 300), envelope);
  const Decision decision = policy->decide(test_reading(952, 100, 60, 100), envelope);
  EXPECT_EQ(decision.clock, Megahertz(952));
  EXPECT_NEAR(decision.expected_performance.value_or(Fraction(0)).value(), 0.75, 1e-9);
}

}  // namespace
}  // namespace derate
