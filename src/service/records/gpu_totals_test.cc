#include "service/records/gpu_totals.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kGap = 2s;

// Records of one GPU, one after the other.
class TotalsRig {
 public:
  Record& next(Duration after) {
    now_ += after;
    record_ = Record{};
    record_.time = now_;
    record_.sample = Sample{.time = now_};
    return record_;
  }
  Record& fail(Duration after, Errc code = Errc::query_failed) {
    Record& out = next(after);
    out.sample.reset();
    out.sample_failure = code;
    return out;
  }
  const GpuTotals& take(const GoverningNow& now = {}) {
    meter.add(record_, before_, now);
    before_ = record_;
    return meter.totals();
  }
  // As after a pause, or of a GPU that has come back.
  void reopen() { before_.reset(); }

  GpuTotalsMeter meter{kGap};

 private:
  Instant now_{1h};
  Record record_;
  std::optional<Record> before_;
};

const GoverningNow kGoverned{.governed = true, .promise = PromiseState::kept};

TEST(GpuTotals, AStateCountsUntilTheNextRecord) {
  TotalsRig rig;
  rig.next(0s);
  rig.take();
  rig.next(1s).decision.probing = true;  // observed until here
  rig.take(kGoverned);
  rig.next(500ms).estimate.idle = true;  // governed, probing until here
  rig.take(kGoverned);
  rig.next(1500ms);  // governed, idle until here
  const GpuTotals& totals = rig.take(kGoverned);
  EXPECT_EQ(totals.observed, Duration(1s));
  EXPECT_EQ(totals.governed, Duration(2s));
  EXPECT_EQ(totals.probing, Duration(500ms));
  EXPECT_EQ(totals.idle, Duration(1500ms));
  EXPECT_EQ(totals.reads, 4u);
}

TEST(GpuTotals, TimeThatWasNotSeenIsOfNoState) {
  TotalsRig rig;
  rig.next(0s);
  rig.take(kGoverned);
  rig.next(3s);  // longer than is held
  EXPECT_EQ(rig.take(kGoverned).governed, Duration());
  rig.next(1s);
  rig.take(kGoverned);
  rig.reopen();
  rig.next(1s);
  EXPECT_EQ(rig.take(kGoverned).governed, Duration(1s));
  // A policy that looks seldom is seen all the time.
  GoverningNow slow = kGoverned;
  slow.tick = 10s;
  rig.next(1s);
  EXPECT_EQ(rig.take(slow).due_within, Duration(20s));
  rig.next(10s);
  EXPECT_EQ(rig.take(slow).governed, Duration(12s));
}

TEST(GpuTotals, ThrottleSecondsByReason) {
  TotalsRig rig;
  rig.next(0s).sample->throttle_reasons = throttle::kSwPowerCap | throttle::kHwThermalSlowdown;
  rig.take();
  rig.fail(1s);
  rig.take();
  rig.next(1s);
  const GpuTotals& totals = rig.take();
  for (std::size_t i = 0; i < kThrottleReasons; ++i) {
    const std::string name = throttle_reasons()[i].name;
    const bool held = name == "power limit" || name == "thermal (hardware)";
    EXPECT_EQ(totals.throttled[i], held ? Duration(1s) : Duration()) << name;
  }
}

TEST(GpuTotals, APromiseIsBrokenAsOftenAsItBegins) {
  TotalsRig rig;
  const auto expect = [&](PromiseState state) {
    rig.next(1s);
    return rig.take({.governed = true, .promise = state}).violations;
  };
  EXPECT_EQ(expect(PromiseState::kept), 0u);
  EXPECT_EQ(expect(PromiseState::below), 0u);
  EXPECT_EQ(expect(PromiseState::broken), 1u);
  EXPECT_EQ(expect(PromiseState::broken), 1u);
  EXPECT_EQ(expect(PromiseState::not_known), 1u);
  EXPECT_EQ(expect(PromiseState::broken), 2u);
  EXPECT_EQ(expect(PromiseState::kept), 2u);
  EXPECT_EQ(rig.meter.totals().below_promise, Duration(4s));
}

// Counters wait where an estimate takes some back, and go on when it has come there again.
TEST(GpuTotals, SumsOfASavingNeverGoBack) {
  TotalsRig rig;
  const auto add = [&](double at_highest) {
    rig.next(1s).saving = Saving{.energy = Joules(80), .energy_at_highest = Joules(at_highest)};
    return rig.take(kGoverned);
  };
  EXPECT_EQ(add(100).most_saving.at_highest_mj, 100'000);
  const GpuTotals back = add(-30);
  EXPECT_EQ(back.most_saving.at_highest_mj, 100'000);
  EXPECT_EQ(back.saving->energy_at_highest, Joules(70));
  EXPECT_EQ(back.most_saving.energy_mj, 160'000);
  EXPECT_EQ(add(20).most_saving.at_highest_mj, 100'000);
  EXPECT_EQ(add(100).most_saving.at_highest_mj, 190'000);
}

TEST(GpuTotals, LostIsWhatWasNotReadForSomeTimeAndCountsOnce) {
  TotalsRig rig;
  rig.next(0s);
  rig.take();
  for (int i = 0; i < 4; ++i) {
    rig.fail(1s);
    EXPECT_FALSE(rig.take().lost) << i;
  }
  for (int i = 0; i < 3; ++i) {
    rig.fail(1s);
    EXPECT_TRUE(rig.take().lost) << i;
  }
  EXPECT_EQ(rig.meter.totals().times_lost, 1u);
  rig.reopen();  // found again
  rig.next(1s);
  const GpuTotals& totals = rig.take();
  EXPECT_FALSE(totals.lost);
  EXPECT_EQ(totals.failed_reads, 7u);
  EXPECT_EQ(totals.times_lost, 1u);
}

TEST(GpuTotals, StuckIsACallThatDoesNotComeBack) {
  TotalsRig rig;
  rig.next(0s);
  rig.take();
  rig.fail(1s, Errc::gpu_stuck);
  EXPECT_TRUE(rig.take().stuck);
  rig.fail(1s, Errc::gpu_stuck);
  EXPECT_EQ(rig.take().times_stuck, 1u);
  rig.fail(1s);
  EXPECT_FALSE(rig.take().stuck);
  rig.fail(1s, Errc::gpu_stuck);
  EXPECT_EQ(rig.take().times_stuck, 2u);
  rig.next(1s);
  EXPECT_FALSE(rig.take().stuck);
}

TEST(GpuTotals, WritesRefusalsAndDriftsAreEventsNotTicks) {
  using Outcome = Actuation::Outcome;
  TotalsRig rig;
  const auto act = [&](Outcome outcome, int drifts = 0) {
    Record& record = rig.next(100ms);
    record.actuation.outcome = outcome;
    record.actuation.drifts = drifts;
    record.clamped.rule =
        outcome == Outcome::nothing ? Clamped::Rule::thermal : Clamped::Rule::none;
    rig.take(kGoverned);
  };
  act(Outcome::written);
  act(Outcome::nothing);
  act(Outcome::nothing, 1);
  act(Outcome::failed, 2);
  act(Outcome::waiting, 2);
  act(Outcome::released, 2);
  act(Outcome::yielded, 3);
  act(Outcome::yielded, 3);
  act(Outcome::shadow, 1);  // another actuator
  act(Outcome::nothing, 1);
  const GpuTotals& totals = rig.meter.totals();
  EXPECT_EQ(totals.writes, 2u);
  EXPECT_EQ(totals.failed_writes, 1u);
  EXPECT_EQ(totals.yields, 1u);
  EXPECT_EQ(totals.drifts, 4u);
  EXPECT_EQ(totals.refusals[static_cast<std::size_t>(Clamped::Rule::thermal)], 2u);
}

TEST(GpuTotals, EnergyIsByTheCounterAndGoesOnAfterAPauseAndANewCounter) {
  TotalsRig rig;
  const auto read = [&](Duration after, double joules) {
    Record& record = rig.next(after);
    record.sample->energy = Joules(joules);
    record.sample->power_instant = Watts(100);
    return rig.take().energy.value_or(Joules(-1)).value();
  };
  EXPECT_DOUBLE_EQ(read(0s, 5000), 0);
  EXPECT_DOUBLE_EQ(read(1s, 5110), 110);
  rig.reopen();
  EXPECT_DOUBLE_EQ(read(60s, 11110), 6110);  // used while it was paused
  EXPECT_DOUBLE_EQ(read(1s, 20), 6210);      // another counter: by power
  EXPECT_DOUBLE_EQ(read(1s, 130), 6320);
}

TEST(GpuTotals, WhatIsReadNowAndThenIsKept) {
  TotalsRig rig;
  rig.next(0s).sample->activity.sm = Fraction(0.5);
  rig.take();
  rig.next(100ms).sample->tenants = 2;
  const GpuTotals& totals = rig.take();
  EXPECT_EQ(totals.activity.sm, Fraction(0.5));
  EXPECT_EQ(totals.activity_read, Instant(1h));
  EXPECT_EQ(totals.processes, 2);
  EXPECT_EQ(totals.sampled, Instant(1h + 100ms));
}

TEST(GpuTotals, ADryRunSavesNothing) {
  TotalsRig rig;
  rig.next(0s).saving = Saving{.energy = Joules(10), .energy_at_highest = Joules(15)};
  GoverningNow dry = kGoverned;
  dry.dry_run = true;
  EXPECT_FALSE(rig.take(dry).saving);
  rig.next(1s).saving = Saving{.energy = Joules(10), .energy_at_highest = Joules(15)};
  EXPECT_EQ(rig.take(kGoverned).saving->energy_at_highest, Joules(15));
}

// Whatever sensors, policies and openings do, no counter goes back.
RC_GTEST_PROP(GpuTotals, NeverGoBack, ()) {
  TotalsRig rig;
  double counter = 1000;
  GpuTotals before;
  const int records = *rc::gen::inRange(1, 60);
  for (int i = 0; i < records; ++i) {
    const Duration after = std::chrono::milliseconds(*rc::gen::inRange(0, 4000));
    if (*rc::gen::weightedElement<bool>({{1, true}, {3, false}})) {
      rig.fail(after, *rc::gen::element(Errc::gpu_stuck, Errc::query_failed));
    } else {
      Sample& sample = *rig.next(after).sample;
      counter += *rc::gen::inRange(0, 3000);
      if (*rc::gen::weightedElement<bool>({{1, true}, {9, false}})) counter = 0;
      if (*rc::gen::arbitrary<bool>()) sample.energy = Joules(counter);
      if (*rc::gen::arbitrary<bool>()) sample.power_instant = Watts(*rc::gen::inRange(0, 900));
      sample.throttle_reasons = *rc::gen::inRange<std::uint64_t>(0, 512);
      if (*rc::gen::weightedElement<bool>({{1, true}, {9, false}})) rig.reopen();
    }
    GoverningNow now{.governed = *rc::gen::arbitrary<bool>(),
                     .promise = static_cast<PromiseState>(*rc::gen::inRange(0, kPromiseStates))};
    const GpuTotals totals = rig.take(now);
    RC_ASSERT(totals.energy.value_or(Joules()) >= before.energy.value_or(Joules()));
    RC_ASSERT(totals.energy.has_value() || !before.energy.has_value());
    for (const auto field : {&GpuTotals::governed, &GpuTotals::observed, &GpuTotals::probing,
                             &GpuTotals::idle, &GpuTotals::below_promise})
      RC_ASSERT((totals.*field) >= (before.*field));
    for (const auto field :
         {&GpuTotals::violations, &GpuTotals::writes, &GpuTotals::drifts, &GpuTotals::reads,
          &GpuTotals::failed_reads, &GpuTotals::times_lost, &GpuTotals::times_stuck})
      RC_ASSERT((totals.*field) >= (before.*field));
    for (std::size_t reason = 0; reason < kThrottleReasons; ++reason)
      RC_ASSERT(totals.throttled[reason] >= before.throttled[reason]);
    before = totals;
  }
}

}  // namespace
}  // namespace derate
