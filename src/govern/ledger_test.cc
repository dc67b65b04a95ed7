#include "govern/ledger.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;
using Outcome = Actuation::Outcome;

Record at(Duration time, std::optional<Megahertz> locked, Outcome outcome = Outcome::nothing) {
  Record record;
  record.time = Instant(time);
  record.actuation = {outcome, locked, {}};
  record.sample.emplace();
  record.sample->time = record.time;
  record.sample->power_usage = 100_W;
  return record;
}

TEST(Ledger, IsEmptyAtFirst) {
  const Ledger ledger(1500_MHz);
  EXPECT_EQ(ledger.figures().ticks, 0);
  EXPECT_FALSE(ledger.figures().clock_ratio || ledger.figures().expected_performance ||
               ledger.energy().total());
  EXPECT_EQ(ledger.figures().expected_coverage, Fraction(0));
}

TEST(Ledger, EachRecordHoldsUntilTheNext) {
  Ledger ledger(1500_MHz);
  ledger.add(at(0s, 1500_MHz, Outcome::written));
  ledger.add(at(1s, 1200_MHz, Outcome::written));
  ledger.add(at(3s, {}, Outcome::released));
  ledger.add(at(4s, {}));
  EXPECT_EQ(ledger.figures().asked_clocks,
            (std::map<Megahertz, Duration>{{1200_MHz, 2s}, {1500_MHz, 1s}}));
  EXPECT_EQ(ledger.figures().released, 1s);
  EXPECT_DOUBLE_EQ(ledger.figures().clock_ratio->value(), (1 + 2 * 0.8 + 1) / 4);
  EXPECT_EQ(ledger.figures().ticks, 4);
  EXPECT_EQ(ledger.figures().writes, 3);
  EXPECT_EQ(ledger.energy().total(), 400_J);
}

TEST(Ledger, HeartbeatsWhoseRateMovesAtOneClockAreReported) {
  Ledger ledger(1500_MHz);
  for (int s = 0; s <= 90; ++s) {
    Record record = at(std::chrono::seconds(s), 1200_MHz);
    record.estimate.sm_clock = 1200_MHz;
    record.estimate.power = 100_W;
    record.estimate.work.progress =
        Progress{.done = s < 45 ? 10.0 * s : 450 + 12.0 * (s - 45), .time = record.time};
    ledger.add(record);
  }
  ASSERT_TRUE(ledger.figures().heartbeats_moved);
  EXPECT_NEAR(*ledger.figures().heartbeats_moved, 0.2, 0.05);
}

TEST(Ledger, ExpectedPerformanceIsOverTheTimeThatHasOne) {
  Ledger ledger(1500_MHz);
  Record modelled = at(1s, 1200_MHz);
  modelled.decision.expected_performance = Fraction(0.9);
  Record better = at(2s, 1200_MHz);
  better.decision.expected_performance = Fraction(1.0);
  ledger.add(at(0s, 1200_MHz));
  ledger.add(modelled);
  ledger.add(better);
  ledger.add(at(4s, 1200_MHz));
  ledger.add(at(5s, 1200_MHz));
  EXPECT_DOUBLE_EQ(ledger.figures().expected_performance->value(), (0.9 + 2 * 1.0) / 3);
  EXPECT_DOUBLE_EQ(ledger.figures().expected_coverage.value(), 3.0 / 5);
}

TEST(Ledger, TimeWithoutWorkIsThatOfAUtilisationOfZero) {
  Ledger ledger(1500_MHz);
  Record still = at(1s, 1500_MHz), busy = at(4s, 1500_MHz);
  still.estimate.gpu_utilisation = Fraction(0);
  busy.estimate.gpu_utilisation = Fraction(0.01);
  ledger.add(at(0s, 1500_MHz));  // not read: not known
  ledger.add(still);
  ledger.add(busy);
  ledger.add(at(9s, 1500_MHz));
  EXPECT_EQ(ledger.figures().without_work, 3s);
}

TEST(Ledger, TimeInStepAndWhoStraggled) {
  Ledger ledger(1500_MHz);
  Record in_step = at(1s, 1500_MHz);
  in_step.estimate.work.step_group = 1;
  Record late = in_step;
  late.time = Instant(3s);
  late.estimate.work.straggles = "slow";
  ledger.add(at(0s, 1500_MHz));
  ledger.add(in_step);
  ledger.add(late);
  ledger.add(at(4s, 1500_MHz));
  ledger.add(at(9s, 1500_MHz));
  EXPECT_EQ(ledger.figures().in_step, 3s);
  EXPECT_EQ(ledger.figures().straggled, 1s);
  EXPECT_EQ(ledger.figures().straggled_why, "slow");
}

TEST(Ledger, CountsFailuresAndKeepsTheLastReason) {
  Ledger ledger(1500_MHz);
  Record lost = at(0s, {});
  lost.sample.reset();
  lost.sample_error = "lost";
  ledger.add(lost);
  EXPECT_EQ(ledger.figures().last_error, "lost");
  Record refused = at(1s, {}, Outcome::failed);
  refused.actuation.error = "refused";
  ledger.add(refused);
  ledger.add(at(2s, 1200_MHz, Outcome::shadow));
  EXPECT_EQ(ledger.figures().failed_reads, 1);
  EXPECT_EQ(ledger.figures().failed_writes, 1);
  EXPECT_EQ(ledger.figures().writes, 1);
  EXPECT_EQ(ledger.figures().last_error, "refused");
}

TEST(Ledger, TellsPowerCapFromHeat) {
  Ledger ledger(1500_MHz);
  const auto with = [](Duration t, std::uint64_t bits) {
    Record record = at(t, 1500_MHz);
    record.sample->throttle_reasons = bits;
    return record;
  };
  ledger.add(with(0s, throttle::kSwPowerCap));
  ledger.add(with(1s, throttle::kHwThermalSlowdown | throttle::kSwPowerCap));
  ledger.add(with(3s, throttle::kSwThermalSlowdown));
  ledger.add(with(6s, throttle::kGpuIdle));
  ledger.add(at(10s, 1500_MHz));
  EXPECT_EQ(ledger.figures().capped, 3s);
  EXPECT_EQ(ledger.figures().thermal, 5s);
}

}  // namespace
}  // namespace derate
