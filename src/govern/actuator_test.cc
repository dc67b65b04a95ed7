#include "govern/actuator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/test_folder.h"
#include "govern/test_control.h"

namespace derate {
namespace {

using namespace literals;
using Outcome = Actuation::Outcome;
using Calls = std::vector<std::string>;

// Each call comes two minutes after the one before: later than any write that failed is put off.
Actuation apply(Actuator& actuator, const Decision& decision) {
  static Instant now{};
  Estimate estimate;
  estimate.time = now += std::chrono::minutes(2);
  return actuator.apply(decision, estimate);
}

TEST(Actuator, WritesOnlyWhatDiffers) {
  TestControl control;
  Actuator actuator(&control);
  EXPECT_EQ(apply(actuator, kHold).outcome, Outcome::nothing);
  EXPECT_EQ(apply(actuator, kRelease).outcome, Outcome::nothing);
  EXPECT_EQ(apply(actuator, set(1200)), (Actuation{Outcome::written, 1200_MHz, {}}));
  EXPECT_EQ(apply(actuator, set(1200)), (Actuation{Outcome::nothing, 1200_MHz, {}}));
  EXPECT_EQ(apply(actuator, kHold), (Actuation{Outcome::nothing, 1200_MHz, {}}));
  EXPECT_EQ(apply(actuator, set(1300)).before, 1200_MHz);
  EXPECT_EQ(apply(actuator, kRelease), (Actuation{Outcome::released, {}, {}, {}, 1300_MHz}));
  EXPECT_EQ(apply(actuator, kRelease).outcome, Outcome::nothing);
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "1300..1300", "reset"}));
}

TEST(Actuator, TriesAgainWhatFailed) {
  TestControl control;
  Actuator actuator(&control);
  apply(actuator, set(1500));
  control.refuse = true;
  EXPECT_EQ(apply(actuator, set(1200)), (Actuation{Outcome::failed, 1500_MHz, "refused"}));
  EXPECT_EQ(apply(actuator, kHold).outcome, Outcome::failed);
  EXPECT_EQ(actuator.locked(), 1500_MHz);
  control.refuse = false;
  EXPECT_EQ(apply(actuator, kHold), (Actuation{Outcome::written, 1200_MHz, {}, {}, 1500_MHz}));
  EXPECT_EQ(apply(actuator, kHold).outcome, Outcome::nothing);
  EXPECT_EQ(control.calls.size(), 4u);
  control.refuse = true;
  EXPECT_EQ(apply(actuator, kRelease), (Actuation{Outcome::failed, 1200_MHz, "refused"}));
  control.refuse = false;
  EXPECT_EQ(apply(actuator, kHold).outcome, Outcome::released);
}

TEST(Actuator, AShadowReportsAndWritesNothing) {
  Actuator actuator(nullptr);
  EXPECT_EQ(apply(actuator, set(1200)), (Actuation{Outcome::shadow, 1200_MHz, {}}));
  EXPECT_EQ(apply(actuator, set(1200)).outcome, Outcome::nothing);
  EXPECT_EQ(apply(actuator, kRelease), (Actuation{Outcome::shadow, {}, {}}));
  EXPECT_TRUE(actuator.restore().ok());
}

TEST(Actuator, RestoresWhenItGoes) {
  TestControl control;
  {
    Actuator actuator(&control);
    apply(actuator, set(1200));
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset"}));
}

TEST(Actuator, AGpuThatWasNeverTouchedIsLeftAlone) {
  TestControl control;
  {
    Actuator actuator(&control);
    apply(actuator, kHold);
    apply(actuator, kRelease);
    EXPECT_TRUE(actuator.restore().ok());
  }
  EXPECT_TRUE(control.calls.empty());
}

TEST(Actuator, RestoresOnceAndSaysWhenItCannot) {
  TestControl control;
  {
    Actuator actuator(&control);
    apply(actuator, set(1200));
    control.refuse = true;
    EXPECT_EQ(actuator.restore().error().code, Errc::no_permission);
    control.refuse = false;
    EXPECT_TRUE(actuator.restore().ok());
    EXPECT_EQ(actuator.locked(), std::nullopt);
    EXPECT_TRUE(actuator.restore().ok());
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset", "reset"}));
}

// A lock that failed may still have had an effect: the GPU is given back all the same.
TEST(Actuator, RestoresAfterAFailedWrite) {
  TestControl control;
  {
    Actuator actuator(&control);
    control.refuse = true;
    control.refused_with = Errc::query_failed;
    apply(actuator, set(1200));
    control.refuse = false;
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset"}));
}

TEST(Actuator, TheOneMovedFromRestoresNothing) {
  TestControl control;
  {
    Actuator actuator(&control);
    apply(actuator, set(1200));
    {
      Actuator moved(std::move(actuator));
      EXPECT_EQ(moved.locked(), 1200_MHz);
      EXPECT_EQ(apply(moved, set(1200)).outcome, Outcome::nothing);
    }
    EXPECT_EQ(control.calls.size(), 2u);
  }
  EXPECT_EQ(control.calls, (Calls{"1200..1200", "reset"}));
}

// Moved at any time it does what one that stays would do: no member is left behind.
RC_GTEST_PROP(ActuatorProperty, AMoveChangesNothing, (unsigned seed)) {
  std::mt19937_64 random(seed);
  TestControl controls[2];
  ActuatorOptions options{.supported = {1000_MHz, 1010_MHz, 1020_MHz}};
  Actuator stays(&controls[0], options);
  auto moves = std::make_unique<Actuator>(&controls[1], options);
  Estimate estimate;
  estimate.freshness = Freshness::fresh;
  estimate.gpu_utilisation = Fraction(1);
  estimate.throttle_reasons = 0;
  for (int i = 0; i < 60; ++i) {
    const auto kind = random() % 4;
    const Decision decision = kind == 0   ? kRelease
                              : kind == 1 ? set(static_cast<double>(1000 + 10 * (random() % 3)))
                                          : kHold;
    controls[0].refuse = controls[1].refuse = random() % 4 == 0;
    estimate.time += std::chrono::milliseconds(random() % 1500);
    estimate.sm_clock = Megahertz(static_cast<double>(1000 + 10 * (random() % 3)));
    if (random() % 2 == 0) moves = std::make_unique<Actuator>(std::move(*moves));
    RC_ASSERT(moves->apply(decision, estimate) == stays.apply(decision, estimate));
  }
  RC_ASSERT(stays.restore().ok() == moves->restore().ok());
  RC_ASSERT(controls[0].calls == controls[1].calls);
}

// Whatever is decided and whatever fails: once writes succeed the GPU is where the decisions want
// it, and after the end it is as found.
RC_GTEST_PROP(ActuatorProperty, ConvergesAndRestores, (unsigned seed)) {
  std::mt19937_64 random(seed);
  TestControl control;
  {
    Actuator actuator(&control);
    std::optional<Megahertz> wanted;
    for (int i = 0; i < 50; ++i) {
      const auto kind = random() % 3;
      const double clock = static_cast<double>(1000 + 10 * (random() % 5));
      const Decision decision = kind == 0 ? kHold : kind == 1 ? kRelease : set(clock);
      if (kind == 1) wanted.reset();
      if (kind == 2) wanted = decision.clock;
      control.refuse = random() % 3 == 0;
      const auto before = control.calls.size();
      const Actuation done = apply(actuator, decision);
      RC_ASSERT(control.calls.size() - before == (done.outcome == Outcome::nothing ? 0u : 1u));
      RC_ASSERT(done.locked == actuator.locked());
      if (!control.refuse) RC_ASSERT(done.locked == wanted);
    }
    control.refuse = false;
  }
  if (!control.calls.empty()) RC_ASSERT(control.calls.back() == "reset");
}

// --- proof, drift, power, journal ----------------------------------------------------------------

// An actuator whose readings a test makes up, five a second.
class Watched {
 public:
  explicit Watched(ActuatorOptions options = {}) {
    options.supported = {1000_MHz, 1100_MHz, 1200_MHz, 1300_MHz, 1400_MHz, 1530_MHz};
    actuator.emplace(&control, std::move(options));
  }
  Actuation tick(const Decision& decision, double mhz, double utilisation = 1) {
    estimate.time += std::chrono::milliseconds(200);
    estimate.freshness = Freshness::fresh;
    estimate.sm_clock = Megahertz(mhz);
    estimate.gpu_utilisation = Fraction(utilisation);
    estimate.throttle_reasons = 0;
    return actuator->apply(decision, estimate);
  }
  // Until something other than `nothing` comes, for ten seconds at most.
  Actuation until_news(const Decision& decision, double mhz) {
    Actuation last;
    for (int i = 0; i < 50; ++i)
      if (last = tick(decision, mhz); last.outcome != Outcome::nothing) break;
    return last;
  }

  TestControl control;
  Estimate estimate;
  std::optional<Actuator> actuator;
};

// A GPU that was lost for seconds comes back without its clock lock. No other check finds this: a
// published policy's clock is not watched for drift.
TEST(Actuator, WritesAgainWhatIsInForceWhenAGpuAnswersAgain) {
  for (const DriftRule rule : {DriftRule::ignore, DriftRule::reassert, DriftRule::yield}) {
    Watched watched({.on_drift = rule});
    EXPECT_EQ(watched.tick(set(1200), 1200).outcome, Outcome::written);
    EXPECT_EQ(watched.tick(kHold, 1200).outcome, Outcome::nothing);
    watched.estimate.freshness = Freshness::stale;  // a single lost reading
    EXPECT_EQ(watched.actuator->apply(kHold, watched.estimate).outcome, Outcome::nothing);
    EXPECT_EQ(watched.tick(kHold, 1200).outcome, Outcome::nothing);
    watched.estimate.freshness = Freshness::expired;
    EXPECT_EQ(watched.actuator->apply(kHold, watched.estimate).outcome, Outcome::nothing);
    watched.estimate.time += std::chrono::seconds(1);
    const bool ours = rule != DriftRule::yield;
    EXPECT_EQ(watched.tick(kHold, 1200).outcome, ours ? Outcome::written : Outcome::nothing);
    EXPECT_EQ(watched.tick(kHold, 1200).outcome, Outcome::nothing);
    EXPECT_EQ(watched.control.calls.size(), ours ? 2u : 1u);
  }
}

TEST(Actuator, AWriteWithoutEffectIsAnErrorAndTriedAgain) {
  Watched w;
  EXPECT_EQ(w.tick(set(1100), 1530).outcome, Outcome::written);
  const Actuation bad = w.until_news(kHold, 1530);
  EXPECT_EQ(bad.outcome, Outcome::failed);
  EXPECT_NE(bad.error.find("had no effect"), std::string::npos);
  EXPECT_NE(bad.error.find("1100"), std::string::npos);
  EXPECT_EQ(w.tick(kHold, 1530).outcome, Outcome::waiting);
  int writes = 0;
  for (int i = 0; i < 300; ++i) writes += w.tick(kHold, 1530).outcome == Outcome::written ? 1 : 0;
  // Each minute is not flooded: pauses double.
  EXPECT_GE(writes, 2);
  EXPECT_LE(writes, 8);
}

TEST(Actuator, DriftIsSetAgainUntilItIsAFight) {
  Watched w;
  w.tick(set(1100), 1100);
  for (int i = 0; i < Actuator::kFights; ++i) {
    w.tick(kHold, 1100);
    const Actuation again = w.until_news(kHold, 1530);
    EXPECT_EQ(again.outcome, Outcome::written) << i;
    EXPECT_EQ(again.drifts, i + 1);
  }
  w.tick(kHold, 1100);
  const Actuation given_up = w.until_news(kHold, 1530);
  EXPECT_EQ(given_up.outcome, Outcome::yielded);
  EXPECT_NE(given_up.error.find("again and again"), std::string::npos);
  const auto calls = w.control.calls.size();
  EXPECT_EQ(w.tick(set(1300), 1530).outcome, Outcome::yielded);
  w.actuator.reset();
  EXPECT_EQ(w.control.calls.size(), calls);  // the other tool's clock is not reset
}

TEST(Actuator, WhatASuspensionChangedIsNobodysDrift) {
  for (const DriftRule rule : {DriftRule::reassert, DriftRule::yield, DriftRule::ignore}) {
    Watched w({.on_drift = rule});
    w.tick(set(1100), 1100);
    w.tick(kHold, 1100);
    w.actuator->doubt_settings();
    const Actuation after = w.tick(kHold, 1530);
    EXPECT_EQ(after.outcome, Outcome::written);
    EXPECT_EQ(after.drifts, 0);
    EXPECT_EQ(w.control.calls, (Calls{"1100..1100", "1100..1100"}));
    w.tick(kHold, 1100);
    EXPECT_EQ(w.until_news(kHold, 1300).drifts, 1);  // that is another tool's
  }
}

TEST(Actuator, YieldLeavesTheClockToTheOtherToolAtOnce) {
  Watched w({.on_drift = DriftRule::yield});
  w.tick(set(1100), 1100);
  w.tick(kHold, 1100);
  EXPECT_EQ(w.until_news(kHold, 1300).outcome, Outcome::yielded);
  w.actuator.reset();
  EXPECT_EQ(w.control.calls, Calls{"1100..1100"});
}

// A policy that moves its clock all the time must not hide what another tool does.
TEST(Actuator, DriftIsSeenUnderAPolicyThatAsksForAnotherClockEachTick) {
  Watched w({.on_drift = DriftRule::yield});
  w.tick(set(1100), 1100);
  w.tick(kHold, 1100);
  double asked = 1100;
  Actuation last;
  for (int i = 0; i < 100 && last.outcome != Outcome::yielded; ++i)
    last = w.tick(set(asked = asked == 1100 ? 1200 : 1100), 1300);
  EXPECT_EQ(last.outcome, Outcome::yielded);
  EXPECT_EQ(w.control.calls, Calls{"1100..1100"});
}

// Another clock is seen, and then the load ends: that proves nothing, and holds no write up.
TEST(Actuator, ADoubtThatNoLoadEndsPasses) {
  Watched w;
  w.tick(set(1100), 1100);
  w.tick(kHold, 1100);
  EXPECT_EQ(w.tick(set(1200), 1530).outcome, Outcome::nothing);
  Actuation last;
  for (int i = 0; i < 15 && last.outcome != Outcome::written; ++i) last = w.tick(set(1200), 300, 0);
  EXPECT_EQ(last.outcome, Outcome::written);
  EXPECT_EQ(last.drifts, 0);
}

TEST(Actuator, APolicyAsPublishedOnlyCountsDrift) {
  Watched w({.on_drift = DriftRule::ignore});
  w.tick(set(1100), 1100);
  w.tick(kHold, 1100);
  EXPECT_EQ(w.until_news(kHold, 1530).outcome, Outcome::nothing);
  const Actuation told = w.tick(kHold, 1530);
  EXPECT_EQ(told.drifts, 1);
  EXPECT_NE(told.error.find("another tool"), std::string::npos);
  EXPECT_EQ(w.control.calls, Calls{"1100..1100"});
  EXPECT_TRUE(w.tick(set(1200), 1200).error.empty());
}

// A limit that is there already is neither written nor journalled, nor given back.
TEST(Actuator, ACapAsFoundNeedsNoWrite) {
  Watched w;
  const Actuation held = w.tick(Decision::cap(300_W, {"the highest", {}}), 1530);
  EXPECT_EQ(held.outcome, Outcome::nothing);
  EXPECT_EQ(held.power_limit, 300_W);
  EXPECT_EQ(w.tick(kRelease, 1530).outcome, Outcome::released);
  EXPECT_TRUE(w.control.calls.empty());
  EXPECT_EQ(w.tick(Decision::cap(200_W, {"cap", {}}), 1530).outcome, Outcome::written);
  EXPECT_EQ(w.tick(Decision::cap(300_W, {"the highest", {}}), 1530).outcome, Outcome::written);
  EXPECT_EQ(w.control.now.power_limit, 300_W);
}

TEST(Actuator, ACapIsSetReadBackAndGivenBackAsFound) {
  Watched w;
  const Decision cap = Decision::cap(200_W, {"cap", {}});
  const Actuation set_to = w.tick(cap, 1530);
  EXPECT_EQ(set_to.outcome, Outcome::written);
  EXPECT_EQ(set_to.power_limit, 200_W);
  EXPECT_EQ(set_to.power_before, 300_W);
  EXPECT_EQ(w.tick(kHold, 1530).outcome, Outcome::nothing);
  EXPECT_EQ(w.tick(kRelease, 1530).outcome, Outcome::released);
  EXPECT_EQ(w.control.now.power_limit, 300_W);
  w.tick(cap, 1530);
  w.actuator.reset();
  EXPECT_EQ(w.control.calls, (Calls{"200 W", "300 W", "200 W", "300 W"}));
}

TEST(Actuator, ALimitThatAnotherToolChangedIsSeen) {
  Watched w({.on_drift = DriftRule::yield});
  w.tick(Decision::cap(200_W, {"cap", {}}), 1530);
  w.control.now.power_limit = 250_W;
  const Actuation left = w.until_news(kHold, 1530);
  EXPECT_EQ(left.outcome, Outcome::yielded);
  EXPECT_NE(left.error.find("250 W"), std::string::npos);
  w.actuator.reset();
  EXPECT_EQ(w.control.now.power_limit, 250_W);
}

class KeptActuator : public testing::Test {
 protected:
  JournalHandle journal_handle(const std::string& folder) const {
    JournalHandle out{Journal(folder), {}};
    out.entry.domain = gpu_domain("GPU-1");
    out.entry.life = kLife;
    out.entry.owner = "test";
    return out;
  }
  std::vector<JournalEntry> left() const { return Journal(folder_).read(kLife)->entries; }

  static inline const BootIdentity kLife{"boot", ""};
  const Folder home_;
  const std::string folder_ = home_.path();
};

TEST_F(KeptActuator, TheJournalIsThereBeforeTheFirstWriteAndGoneAfterRestore) {
  Watched w({.journal_handle = journal_handle(folder_)});
  w.tick(kHold, 1530);
  EXPECT_TRUE(left().empty());
  w.control.refuse = true;  // the write fails, the journal was written before it
  w.control.refused_with = Errc::query_failed;
  EXPECT_EQ(w.tick(set(1100), 1530).outcome, Outcome::failed);
  ASSERT_EQ(left().size(), 1u);
  EXPECT_TRUE(left()[0].is_written(kClockLock));
  EXPECT_FALSE(left()[0].is_written(kPowerLimit));
  EXPECT_EQ(left()[0].found(kPowerLimit), one_value(300));
  EXPECT_FALSE(w.actuator->restore().ok());
  EXPECT_EQ(left().size(), 1u);  // not restored: it stays
  w.control.refuse = false;
  EXPECT_TRUE(w.actuator->restore().ok());
  EXPECT_TRUE(left().empty());
}

// Whoever comes next finds nothing to restore.
TEST_F(KeptActuator, AFirstWriteThatIsRefusedLeavesNoJournal) {
  Watched w({.journal_handle = journal_handle(folder_)});
  w.tick(kHold, 1530);
  w.control.refuse = true;
  EXPECT_EQ(w.tick(set(1100), 1530).outcome, Outcome::failed);
  EXPECT_TRUE(left().empty());
  EXPECT_TRUE(w.actuator->restore().ok());
}

// What an earlier write has changed is still to be restored.
TEST_F(KeptActuator, ALaterWriteThatIsRefusedKeepsTheJournal) {
  Watched w({.journal_handle = journal_handle(folder_)});
  EXPECT_EQ(w.tick(set(1100), 1530).outcome, Outcome::written);
  w.control.refuse = true;
  EXPECT_EQ(w.tick(set(1200), 1530).outcome, Outcome::failed);
  ASSERT_EQ(left().size(), 1u);
  EXPECT_TRUE(left()[0].is_written(kClockLock));
}

// The next process would find the journal and take the GPU for governed: this actuator must remove
// it.
TEST_F(KeptActuator, AJournalThatCannotBeRemovedIsStillOwed) {
  const std::string folder = folder_ + "/journal";
  for (const bool refused_at_first : {false, true}) {
    Watched w({.journal_handle = journal_handle(folder)});
    w.tick(kHold, 1530);
    if (!refused_at_first) {
      EXPECT_EQ(w.tick(set(1100), 1530).outcome, Outcome::written);
    }
    // The folder is replaced by a file, so that the journal cannot be removed.
    w.control.on_next_call = [&] {
      std::filesystem::rename(folder, folder + "x");
      std::ofstream(folder) << "";
    };
    w.control.refuse = refused_at_first;
    if (refused_at_first)
      EXPECT_EQ(w.tick(set(1100), 1530).outcome, Outcome::failed);
    else
      EXPECT_FALSE(w.actuator->restore().ok());
    EXPECT_TRUE(w.actuator->journal_handle()->over);
    std::filesystem::remove(folder);
    std::filesystem::rename(folder + "x", folder);
    EXPECT_EQ(Journal(folder).read(kLife)->entries.size(), 1u);
    EXPECT_TRUE(w.actuator->restore().ok());
    EXPECT_FALSE(w.actuator->journal_handle()->over);
    EXPECT_TRUE(Journal(folder).read(kLife)->entries.empty());
  }
}

TEST_F(KeptActuator, NoJournalNoWrites) {
  Watched w({.journal_handle = journal_handle("/proc/no/journal")});
  const Actuation refused = w.tick(set(1100), 1530);
  EXPECT_EQ(refused.outcome, Outcome::failed);
  EXPECT_NE(refused.error.find("no journal"), std::string::npos);
  EXPECT_TRUE(w.control.calls.empty());
  w.actuator.reset();
  EXPECT_TRUE(w.control.calls.empty());
}

TEST_F(KeptActuator, AnAbandonedGpuIsNotCalledAndItsSuccessorRestoresIt) {
  Watched first({.journal_handle = journal_handle(folder_)});
  first.tick(Decision::cap(200_W, {"cap", {}}), 1530);
  first.actuator->abandon();
  const auto handed = first.actuator->journal_handle();
  first.actuator.reset();
  EXPECT_EQ(first.control.calls, Calls{"200 W"});
  ASSERT_EQ(left().size(), 1u);

  Watched second({.journal_handle = handed});
  second.control.now.power_limit = 200_W;  // as the first left it
  second.actuator.reset();
  EXPECT_EQ(second.control.calls, Calls{"300 W"});
  EXPECT_TRUE(left().empty());
}

TEST_F(KeptActuator, AFoundLockIsWhatReleaseAndRestoreSet) {
  JournalHandle kept = journal_handle(folder_);
  kept.entry.knobs[kClockLock].found = KnobValue{1000, 1300};
  Watched w({.journal_handle = kept});
  w.tick(set(1100), 1530);
  w.tick(kRelease, 1530);
  w.tick(set(1200), 1530);
  w.actuator.reset();
  EXPECT_EQ(w.control.calls, (Calls{"1100..1100", "1000..1300", "1200..1200", "1000..1300"}));
}

// --- The memory clock ----------------------------------------------------------------------------

Decision parked(double mhz) {
  Decision out = set(mhz);
  out.parks_memory = true;
  return out;
}

TEST(Actuator, TheMemoryIsParkedAndGivenBackBeforeTheClock) {
  TestControl control;
  Actuator actuator(&control, {.parked_memory = 405_MHz});
  apply(actuator, set(1500));
  EXPECT_EQ(apply(actuator, parked(1000)).memory_lock, 405_MHz);
  EXPECT_EQ(apply(actuator, kHold).memory_lock, 405_MHz);
  EXPECT_EQ(apply(actuator, parked(1000)).outcome, Outcome::nothing);
  EXPECT_EQ(apply(actuator, set(1500)).memory_lock, std::nullopt);
  EXPECT_EQ(control.calls,
            (Calls{"1500..1500", "memory 405..405", "1000..1000", "memory reset", "1500..1500"}));
}

TEST(Actuator, ADriverThatLocksNoMemoryIsAskedOnceAndTheClockIsSet) {
  TestControl control;
  control.refuse_memory = true;
  Actuator actuator(&control, {.parked_memory = 405_MHz});
  EXPECT_EQ(apply(actuator, parked(1000)).outcome, Outcome::written);
  EXPECT_EQ(apply(actuator, parked(1100)).outcome, Outcome::written);
  EXPECT_EQ(apply(actuator, parked(1100)).outcome, Outcome::nothing);
  EXPECT_EQ(control.calls, (Calls{"memory 405..405", "1000..1000", "1100..1100"}));
  EXPECT_TRUE(actuator.restore().ok());
  EXPECT_EQ(control.calls.back(), "reset");
}

TEST(Actuator, WorkHasItsMemoryBackThoughTheRulesHold) {
  TestControl control;
  Actuator actuator(&control, {.parked_memory = 405_MHz});
  apply(actuator, parked(1000));
  Estimate works;
  works.freshness = Freshness::fresh;
  works.time = Instant::min() + std::chrono::hours(1);
  EXPECT_FALSE(actuator.apply(kHold, works).memory_lock);
  EXPECT_EQ(control.calls.back(), "memory reset");
  EXPECT_EQ(actuator.locked(), 1000_MHz);
}

// The GPU works: its clock comes back whatever becomes of the memory, and the memory without delay.
TEST(Actuator, AFailureOfOneKnobDoesNotHoldTheOther) {
  TestControl control;
  Actuator actuator(&control, {.parked_memory = 405_MHz});
  apply(actuator, parked(1000));
  control.calls.clear();
  control.refuse = true;
  control.refused_with = Errc::query_failed;
  EXPECT_EQ(apply(actuator, set(1500)).outcome, Outcome::failed);
  EXPECT_EQ(control.calls, (Calls{"memory reset", "1500..1500"}));
  control.refuse = false;
  Estimate now;
  now.time = Instant::min() + std::chrono::hours(1);  // long before the next try of what failed
  const Actuation done = actuator.apply(kHold, now);
  EXPECT_EQ(done.outcome, Outcome::written);
  EXPECT_FALSE(done.memory_lock);
  EXPECT_EQ(done.locked, 1500_MHz);
}

// With any other failure than a refusal it may be locked: it is reset, and never tried again.
TEST(Actuator, AMemoryLockThatFailsIsReset) {
  TestControl control;
  Actuator actuator(&control, {.parked_memory = 405_MHz});
  apply(actuator, set(1500));
  control.refuse_memory = true;
  control.refused_memory_with = Errc::query_failed;
  EXPECT_EQ(apply(actuator, parked(1000)).outcome, Outcome::written);
  EXPECT_TRUE(actuator.refuses_memory());
  EXPECT_EQ(control.calls, (Calls{"1500..1500", "memory 405..405", "memory reset", "1000..1000"}));
}

TEST_F(KeptActuator, AMemoryLockIsInTheJournalBeforeItIsWrittenAndIsReset) {
  Watched w({.parked_memory = 405_MHz, .journal_handle = journal_handle(folder_)});
  w.control.on_next_call = [&] {
    ASSERT_EQ(left().size(), 1u);
    EXPECT_TRUE(left().front().is_written(kMemoryLock));
  };
  w.estimate.idle = true;
  w.tick(parked(1000), 1530, 0);
  w.actuator.reset();
  EXPECT_EQ(w.control.calls, (Calls{"memory 405..405", "1000..1000", "memory reset", "reset"}));
  EXPECT_TRUE(left().empty());
}

}  // namespace
}  // namespace derate
