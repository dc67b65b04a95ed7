#include "policy/assure/work_phase.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "policy/assure/test_look.h"

namespace derate {
namespace {

constexpr Megahertz kHighest(1980);
const CurvePriors kPriors = curve_priors("H200");

WorkPhase phase_of(double performance_at_03) {
  const ReadingBatch reference = look_at(0, 1);
  WorkPhase phase = make_phase(reference, kHighest, kPriors);
  learn(phase, reference, {});
  learn(phase, look_at(0.3, performance_at_03), {});
  return phase;
}

// Power falls by 1.4 x beyond performance, as look_at() has it.
TEST(WorkPhase, TellsTheEnergyOfTheSameWorkAtTheReference) {
  const Belief energy = phase_of(0.95).energy_at_reference(0.3);
  EXPECT_NEAR(energy.mean, 1.4 * 0.3, 2 * energy.sd);
  EXPECT_LT(energy.sd, 0.03);
}

// A chip that gets warmer draws more at the clock it has; at the reference it would, too.
TEST(WorkPhase, AWarmerChipDoesNotChangeWhatWasSaved) {
  WorkPhase phase = phase_of(0.95);
  const double before = phase.energy_at_reference(0.3).mean;
  const double watts = 500 * 0.95 * std::exp(-1.4 * 0.3);
  for (int second = 1; second <= 300; ++second)
    phase.curves.meter(Instant(std::chrono::seconds(second)), 0.3,
                       Watts(watts * (1 + second / 6000.0)), 1e-4);
  EXPECT_NEAR(phase.energy_at_reference(0.3).mean, before, 0.02);
}

// As at the end of a job: the reading is half of nothing.
TEST(WorkPhase, APowerReadingFarOffIsNotLearnedFrom) {
  WorkPhase phase = phase_of(0.95);
  const double before = phase.energy_at_reference(0.3).mean;
  phase.curves.meter({}, 0.3, Watts(90), 1e-4);
  EXPECT_EQ(phase.energy_at_reference(0.3).mean, before);
}

TEST(WorkPhase, LearnsWhatTheCountersAgreeOn) {
  const WorkPhase phase = phase_of(0.9);
  EXPECT_NEAR(std::exp(phase.performance(0.3).mean), 0.9, 0.02);
  EXPECT_LT(phase.performance(0.3).sd, 0.03);
  EXPECT_LT(phase.lower_bound(0.3, 2.33), std::log(0.9));
}

// Two that contradict each other are believed less than either alone.
TEST(WorkPhase, ContradictionWidens) {
  const ReadingBatch reference = look_at(0, 1);
  WorkPhase agree = make_phase(reference, kHighest, kPriors), differ = agree;
  ReadingBatch low = look_at(0.3, 0.75), odd = look_at(0.3, 0.75);
  odd.of(Signal::dram) = {};
  put(odd, Signal::dram, 0.5 * 1.3);  // more traffic at the lower clock
  for (WorkPhase* phase : {&agree, &differ}) learn(*phase, reference, {});
  learn(agree, low, {});
  learn(differ, odd, {});
  EXPECT_GT(differ.performance(0.3).sd, 3 * agree.performance(0.3).sd);
  EXPECT_LT(std::exp(differ.lower_bound(0.3, 2.33)), 0.76);
}

// Power that falls further than it does beside such progress.
TEST(WorkPhase, PowerWarns) {
  const ReadingBatch reference = look_at(0, 1);
  WorkPhase calm = make_phase(reference, kHighest, kPriors), warned = calm;
  ReadingBatch low = look_at(0.3, 0.95), steep = low;
  steep.of(Signal::power) = {};
  put(steep, Signal::power, 500 * 0.95 * std::exp(-2.6 * 0.3));
  for (WorkPhase* phase : {&calm, &warned}) learn(*phase, reference, {});
  learn(calm, low, {});
  learn(warned, steep, {});
  EXPECT_GT(warned.performance(0.3).sd, 1.2 * calm.performance(0.3).sd);
  EXPECT_EQ(warned.performance(0.3).mean, calm.performance(0.3).mean);
}

// Whatever is learned, the bound is between the clock's own ratio and full performance.
RC_GTEST_PROP(WorkPhaseProperty, TheBoundHasBounds, ()) {
  const auto percent = [](int low, int high) { return *rc::gen::inRange(low, high) / 100.0; };
  const ReadingBatch reference = look_at(0, 1, percent(1, 100), percent(1, 100));
  WorkPhase phase = make_phase(reference, kHighest, kPriors);
  learn(phase, reference, {});
  for (int i = 0; i < 10; ++i) {
    const double at = percent(0, 60), performance = percent(20, 180);
    learn(phase, look_at(at, performance, percent(1, 100), percent(1, 100)), {});
    for (const double x : {0.0, 0.05, 0.2, 0.5}) {
      RC_ASSERT(phase.lower_bound(x, 2.33) <= 0);
      RC_ASSERT(phase.lower_bound(x, 2.33) >= -x - 0.004 - 1e-12);  // kernels may lose more
    }
  }
}

// Busy for a share of the time, work loses at most that share of what the clock loses, and some.
TEST(WorkPhase, TheHostsTimeDoesNotFollowTheClock) {
  ReadingBatch reference = look_at(0, 1, 0, 0);
  reference.gpu_utilisation = {};
  for (int i = 0; i < 20; ++i) reference.gpu_utilisation.add(0.4);
  const WorkPhase phase = make_phase(reference, kHighest, kPriors);
  ASSERT_TRUE(phase.curves.signals.empty());
  const double lost = 1 - std::exp(phase.lower_bound(0.2, 2.33)), clock = 1 - std::exp(-0.2);
  EXPECT_GT(lost, 0.4 * clock);
  EXPECT_LT(lost, 0.8 * clock);
}

// An error of the counters that the rows do not have, where it is to be allowed for.
TEST(WorkPhase, AllowsForCountersThatShowTooMuch) {
  CurvePriors careful = kPriors;
  careful.overstated = 0.03;
  WorkPhase usual = make_phase(look_at(0, 1), kHighest, kPriors);
  WorkPhase allowed = make_phase(look_at(0, 1), kHighest, careful);
  for (WorkPhase* phase : {&usual, &allowed}) {
    learn(*phase, look_at(0, 1), {});
    learn(*phase, look_at(0.3, 0.95), {});
  }
  EXPECT_NEAR(std::exp(usual.lower_bound(0.3, 2.33)) - std::exp(allowed.lower_bound(0.3, 2.33)),
              0.03, 1e-9);
  EXPECT_EQ(allowed.lower_bound(0, 2.33), 0);
}

// Counters that expect half of the clock's loss or more do not lead below the clock's ratio.
RC_GTEST_PROP(WorkPhase, ClockBoundWorkKeepsToTheClocksRatio, ()) {
  const double x = *rc::gen::inRange(50, 400) / 1000.0;
  const double share = *rc::gen::inRange(0, 110) / 100.0;  // of the clock's loss
  WorkPhase phase = make_phase(look_at(0, 1), kHighest, kPriors);
  learn(phase, look_at(0, 1), {});
  for (int i = 0; i < 5; ++i) learn(phase, look_at(x, std::exp(-share * x)), {});
  const double expected = phase.performance(x).mean, sure = phase.lower_bound(x, 2.33);
  RC_ASSERT(sure >= phase.by_ratio(x) - 1e-9);
  if (expected < -0.5 * x) RC_ASSERT(sure <= phase.by_ratio(x) + 1e-9);
}

// What counters show may have wandered since the reference was read.
TEST(WorkPhase, AReferenceOfLongAgoIsKnownLess) {
  WorkPhase soon = make_phase(look_at(0, 1), kHighest, kPriors), late = soon;
  learn(soon, look_at(0, 1), Instant(std::chrono::seconds(1)));
  learn(late, look_at(0, 1), Instant(std::chrono::seconds(1)));
  learn(soon, look_at(0.3, 0.9), Instant(std::chrono::seconds(2)));
  learn(late, look_at(0.3, 0.9), Instant(std::chrono::minutes(10)));
  EXPECT_GT(late.performance(0.3).sd, soon.performance(0.3).sd);
}

// One clock for phases that take turns: the slower of them weighs by its time.
TEST(WorkPhase, AMixtureIsBetweenItsParts) {
  const WorkPhase follows = phase_of(0.75), flat = phase_of(0.99);
  const MixPart parts[] = {{&follows, 10}, {&flat, 10}};
  const double x = 0.3, z = 2.33;
  const double both = prospect_of_mixture(parts, 0, x, z).lower_bound;
  EXPECT_GT(both, follows.lower_bound(x, z));
  EXPECT_LT(both, flat.lower_bound(x, z));
  // Work of which nothing is known follows the clock.
  EXPECT_LT(prospect_of_mixture(parts, 10, x, z).lower_bound, both);
  EXPECT_NEAR(prospect_of_mixture({}, 10, x, z).lower_bound, -x, 1e-12);
}

TEST(WorkPhase, IsKnownAgain) {
  const WorkPhase phase = phase_of(0.9);
  EXPECT_TRUE(fits(phase, look_at(0.3, 0.9)));
  EXPECT_TRUE(fits(phase, look_at(0, 1)));
  EXPECT_FALSE(fits(phase, look_at(0.3, 0.9, 0.6)));
  ReadingBatch idle = look_at(0, 1);
  idle.gpu_utilisation = {};
  for (int i = 0; i < 5; ++i) idle.gpu_utilisation.add(0.6);
  EXPECT_FALSE(fits(phase, idle));
  EXPECT_FALSE(fits(phase, ReadingBatch{}));
}

TEST(WorkPhase, GoesToTheCacheAndBack) {
  const WorkPhase phase = phase_of(0.9);
  PhaseModel model = to_model(phase, "H200");
  const auto back = from_model(model, kPriors);
  ASSERT_TRUE(back);
  EXPECT_NEAR(back->performance(0.3).mean, phase.performance(0.3).mean, 1e-12);
  EXPECT_TRUE(fits(*back, look_at(0.3, 0.9)));
  // What is old is less sure.
  model.age = std::chrono::hours(24 * 20);
  EXPECT_GT(from_model(model, kPriors)->performance(0.3).sd, back->performance(0.3).sd);
  PhaseModel odd = model;
  odd.progress.mean.pop_back();
  EXPECT_FALSE(from_model(odd, kPriors));
  odd = model;
  odd.signals.front() = "a signal of tomorrow";
  EXPECT_FALSE(from_model(odd, kPriors));
}

TEST(WorkPhase, TheRateAtTheReferenceIsWhatWasReadThere) {
  ReferenceRate rate;
  EXPECT_TRUE(std::isinf(rate.rate().sd));
  rate.add(std::log(100), 1e-4);
  rate.add(std::log(104), 1e-4);
  rate.add(std::log(102), 2e-4);
  EXPECT_NEAR(rate.rate().mean, (std::log(100) + std::log(104) + std::log(102) / 2) / 2.5, 1e-12);
  EXPECT_NEAR(rate.rate().sd, std::sqrt(1e-4 / 2.5), 1e-9);
}

TEST(PhaseReference, ThePowerLimitMayAllowALittleLessThanItDid) {
  PhaseReference reference{.x = 0.1};
  EXPECT_FALSE(reference.limit_allows(0.1));
  reference.capped = true;
  EXPECT_TRUE(reference.limit_allows(0.12));
  EXPECT_FALSE(reference.limit_allows(0.2));
}

TEST(PhaseReference, UtilisationThatIsNotReadFits) {
  const PhaseReference reference{.gpu_utilisation = 0.6};
  EXPECT_TRUE(reference.utilisation_fits({}));
  EXPECT_FALSE(reference.utilisation_fits(look_at(0, 1)));  // 0.98
}

TEST(PhaseVisits, OneLastsAsLongAsEarlierOnesOnAverage) {
  using namespace std::chrono_literals;
  PhaseVisits visits{.began = Instant(10s)};
  EXPECT_EQ(visits.left(Instant(13s)), -3s);  // nothing is known of the first
  visits.end(Instant(14s));
  visits.begin_again(Instant(20s));
  EXPECT_TRUE(visits.returned);
  EXPECT_EQ(visits.age(Instant(21s)), 5s);
  EXPECT_EQ(visits.left(Instant(21s)), 3s);
  visits.end(std::nullopt);
  EXPECT_EQ(visits.earlier, 2);
  EXPECT_EQ(visits.lasted, 4s);
}

TEST(PhaseVisits, DoubtPasses) {
  using namespace std::chrono_literals;
  PhaseVisits visits;
  EXPECT_FALSE(visits.is_doubted(Instant(0s)));
  visits.doubted = Instant(10s);
  EXPECT_TRUE(visits.is_doubted(Instant(29s)));
  EXPECT_FALSE(visits.is_doubted(Instant(30s)));
}

}  // namespace
}  // namespace derate
