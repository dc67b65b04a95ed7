#include "policy/assure/belief.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Megahertz kTopClock(1980);
const AssureOptions kBeliefOptions{
    .highest = kTopClock, .delta = 0.1, .confidence = 0.99, .tick = 0.2, .prior = "H200"};

Instant after_s(double s) { return Instant{} + from_seconds(s); }

ReadingBatch batch_of(Signal signal, double value, double x = 0) {
  ReadingBatch out;
  out.x = x;
  for (int i = 0; i < 6; ++i) {
    out.of(signal).add(value * (i % 2 == 0 ? 1.001 : 0.999));
    out.gpu_utilisation.add(0.98);
    out.clock.add(kTopClock.value() * std::exp(-x));
  }
  return out;
}

// A belief whose work has been in phases of these DRAM readings, the last of them now.
WorkBelief after_phases(const std::vector<double>& dram,
                        const AssureOptions& options = kBeliefOptions) {
  WorkBelief out(options);
  Saving settled;
  double now = 0;
  for (const double share : dram) {
    if (out.phase) out.leave({.now = after_s(now), .beats = {}}, options, settled);
    const ReadingBatch read = batch_of(Signal::dram, share);
    out.make(read, kTopClock, "", after_s(now));
    learn(*out.phase, read, after_s(now));
    now += 10;
    out.count_work(true, 0, 10, after_s(now));
  }
  return out;
}

TEST(WorkBelief, OfUnknownWorkTheClocksRatioIsSure) {
  const WorkBelief belief(kBeliefOptions);
  EXPECT_EQ(belief.lower_bound(0.2), -0.2);
  EXPECT_EQ(belief.lower_bound(0), 0);
}

// Whatever the counters show, no tenant of several loses more than the clock does.
RC_GTEST_PROP(WorkBelief, OneOfSeveralTenantsIsSureOfTheClocksRatioAlone, ()) {
  WorkBelief belief = after_phases({*rc::gen::inRange(10, 90) / 100.0});
  const double x = *rc::gen::inRange(0, 60) / 100.0;
  const double alone = belief.lower_bound(x);
  belief.tenants = 2;
  RC_ASSERT(std::abs(belief.lower_bound(x) - belief.phase->by_ratio(x)) < 1e-9);
  RC_ASSERT(belief.lower_bound(x) <= -x + 1e-9);
  RC_ASSERT(belief.lower_bound(x) >= -x - 0.004 - 1e-9);
  RC_ASSERT(alone >= belief.lower_bound(x) - 1e-9);
}

TEST(WorkBelief, APhaseIsFoundAgainByWhatItShows) {
  WorkBelief belief = after_phases({0.2, 0.7, 0.4});
  ASSERT_EQ(belief.known.size(), 2u);
  const std::string none;
  const PhaseSeen by{.name = none, .now = after_s(40)};
  const std::size_t found = belief.find_by_readings(batch_of(Signal::dram, 0.7), by);
  ASSERT_EQ(found, 1u);
  EXPECT_EQ(belief.find_by_readings(batch_of(Signal::dram, 0.55), by), 2u);
  const std::string other = "decode";
  EXPECT_EQ(belief.find_by_readings(batch_of(Signal::dram, 0.7), {.name = other}), 2u);
  belief.known[1].visits.doubted = after_s(39);
  EXPECT_EQ(belief.find_by_readings(batch_of(Signal::dram, 0.7), by), 2u);
  belief.take_up(1, after_s(40));
  EXPECT_TRUE(belief.phase->visits.returned);
  EXPECT_EQ(belief.known.size(), 1u);
}

TEST(WorkBelief, LaunchesNameTheOneThatWasThereLast) {
  WorkBelief belief(kBeliefOptions);
  Saving settled;
  for (int i = 0; i < 3; ++i) {
    const ReadingBatch read = batch_of(Signal::beat, 100 + i);
    belief.make(read, kTopClock, i == 1 ? "other" : "kernels", after_s(i * 10));
    learn(*belief.phase, read, after_s(i * 10));
    belief.leave({.now = after_s(i * 10 + 10), .beats = {}}, kBeliefOptions, settled);
  }
  ASSERT_EQ(belief.known.size(), 3u);
  EXPECT_EQ(belief.find_by_name("kernels"), 2u);
  EXPECT_EQ(belief.find_by_name("none"), 3u);
  belief.begin("next job", kBeliefOptions);  // beats count in one job's own units
  EXPECT_TRUE(belief.known.empty());
}

// What was done before anything was known is credited by what is sure of it then.
TEST(WorkBelief, WorkThatBecomesKnownWasNoSlowerThanTheClock) {
  WorkBelief belief = after_phases({0.5});
  EXPECT_EQ(belief.be_known(after_s(10)), std::nullopt);
  belief.count_work(false, 0.3, 2, after_s(12));
  EXPECT_EQ(belief.unknown_s, 2);
  const auto more = belief.be_known(after_s(12));
  ASSERT_TRUE(more);
  EXPECT_GE(*more, -2 * 0.004);  // kernels may lose more than the clocks' ratio
  EXPECT_EQ(belief.be_known(after_s(12)), std::nullopt);
}

TEST(WorkBelief, TheMixtureIsOfWhatHasAShareOfTheWorkOfLate) {
  WorkBelief belief = after_phases({0.2, 0.7});
  EXPECT_EQ(belief.mix_of_late(after_s(20)).size(), 2u);
  EXPECT_FALSE(belief.knows_too_little(after_s(20), false));
  belief.count_work(false, 0, 10, after_s(30));
  belief.stay_unknown(after_s(30));
  EXPECT_TRUE(belief.knows_too_little(after_s(30), false));
}

TEST(WorkBelief, AMixtureIsNotKnownAgainAndWhatItSavedIsSettled) {
  WorkBelief belief = after_phases({0.5});
  belief.phase->spent.add_unsaved({10s, Joules(1000)});
  Saving settled;
  belief.leave({.now = after_s(10), .beats = {}, .mixed = true}, kBeliefOptions, settled);
  EXPECT_FALSE(belief.phase);
  EXPECT_TRUE(belief.known.empty());
  EXPECT_EQ(settled.energy, Joules(1000));
}

// Also of a promise that allows no loss.
RC_GTEST_PROP(WorkBelief, ADryRunReportsSharesThatAreShares, ()) {
  const double delta = *rc::gen::inRange(0, 51) / 100.0;
  const double memory = *rc::gen::inRange(0, 101) / 100.0;
  AssureOptions options = kBeliefOptions;
  options.dry_run = true;
  WorkBelief belief(options);
  const std::vector<Megahertz> clocks{Megahertz(990), Megahertz(1485), kTopClock};
  belief.allowed = {delta, *Envelope::create(clocks, clocks.front(), kTopClock)};
  belief.make(batch_of(Signal::memory, memory), kTopClock, "", after_s(0));
  belief.phase->spent.add(0, {10s, Joules(1000)});
  const Saving saving = belief.saving_of(*belief.phase, options);
  const auto saved = energy_saving(saving), kept = performance(saving);
  RC_ASSERT(saved && kept);
  RC_ASSERT(-1e-9 <= saved->low && saved->low <= saved->high && saved->high < 1);
  RC_ASSERT(saving.time >= saving.time_at_highest);  // no work is faster at a lower clock
  RC_ASSERT(1 - delta - 1e-9 <= kept->low && kept->low <= kept->high && kept->high <= 1 + 1e-9);
}

}  // namespace
}  // namespace derate
