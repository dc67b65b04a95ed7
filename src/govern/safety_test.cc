#include "govern/safety.h"
#include "govern/test_control.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;
using Kind = Decision::Kind;
using Rule = Clamped::Rule;

Envelope clocks_1000_to_1500() {
  std::vector<Megahertz> clocks;
  for (int mhz = 1000; mhz <= 1500; mhz += 10) clocks.emplace_back(mhz);
  return *Envelope::create(clocks, clocks.front(), clocks.back());
}

Estimate at(Duration time, bool idle = false, bool hot = false) {
  Estimate e;
  e.time = Instant(time);
  e.freshness = Freshness::fresh;
  e.idle = idle;
  e.hot = hot;
  return e;
}

const Decision kCap = Decision::cap(Watts(200), {"capped", {}});

// Safety and a GPU that does as it is told.
class Rig {
 public:
  explicit Rig(bool as_published, const SafetyRules& rules = {})
      : safety(rules, clocks_1000_to_1500(), as_published) {}

  Clamped tick(const Decision& decision, const Estimate& estimate) {
    top = safety.envelope(estimate).highest();
    const Clamped out = safety.clamp(decision, estimate, locked);
    if (out.decision.kind == Kind::set) locked = out.decision.clock;
    if (out.decision.kind == Kind::release || out.decision.kind == Kind::cap) locked.reset();
    return out;
  }

  Safety safety;
  std::optional<Megahertz> locked;
  Megahertz top{};
};

// --- Freshness -----------------------------------------------------------------------------------

TEST(Safety, HoldsOnAStaleReadingAndReleasesOnAnExpiredOne) {
  for (const bool as_published : {false, true})
    for (const Decision& decision : {set(1200), kHold, kRelease, kCap}) {
      Rig rig(as_published);
      rig.tick(set(1300), at(0s));
      Estimate e = at(1s, true, true);
      e.freshness = Freshness::stale;
      const Clamped stale = rig.tick(decision, e);
      EXPECT_EQ(stale.rule, Rule::stale);
      EXPECT_EQ(stale.decision.kind, Kind::hold);
      EXPECT_EQ(rig.locked, 1300_MHz);
      e.freshness = Freshness::expired;
      const Clamped expired = rig.tick(decision, e);
      EXPECT_EQ(expired.rule, Rule::expired);
      EXPECT_EQ(expired.decision.kind, Kind::release);
    }
}

// --- Envelope ------------------------------------------------------------------------------------

TEST(Safety, KeepsSettingsInsideTheEnvelope) {
  for (const auto& [wanted, given] :
       {std::pair(900, 1000), {1000, 1000}, {1001, 1010}, {1500, 1500}, {1600, 1500}}) {
    Rig rig(true);
    const Clamped out = rig.tick(set(wanted), at(0s));
    EXPECT_EQ(out.decision.clock, Megahertz(given));
    EXPECT_EQ(out.rule, wanted == given ? Rule::none : Rule::envelope);
  }
}

TEST(Safety, LetsOtherDecisionsPass) {
  Rig rig(false);
  for (const Decision& decision : {set(1200), kHold, kRelease, kCap}) {
    const Clamped out = rig.tick(decision, at(0s));
    EXPECT_EQ(out.decision, decision);
    EXPECT_EQ(out.rule, Rule::none);
  }
}

// --- Idling --------------------------------------------------------------------------------------

TEST(Safety, AnIdleGpuParksAndGetsTheTopUntilThePolicySpeaks) {
  Rig rig(false);
  rig.tick(set(1300), at(0s));
  EXPECT_EQ(rig.tick(kHold, at(1s, true)).rule, Rule::idle);
  EXPECT_EQ(rig.locked, 1000_MHz);
  EXPECT_EQ(rig.tick(set(1300), at(2s, true)).rule, Rule::idle);
  EXPECT_EQ(rig.locked, 1000_MHz);
  for (const Duration t : {3s, 4s}) {
    EXPECT_EQ(rig.tick(kHold, at(t)).rule, Rule::wake);
    EXPECT_EQ(rig.locked, 1500_MHz);
  }
  EXPECT_EQ(rig.tick(set(1200), at(5s)).rule, Rule::none);
  EXPECT_EQ(rig.locked, 1200_MHz);
  EXPECT_EQ(rig.tick(kHold, at(6s)).rule, Rule::none);
  EXPECT_EQ(rig.locked, 1200_MHz);
}

// A policy that knows when its work comes back keeps the clock that it sets.
TEST(Safety, APolicyMayKeepAnIdleGpuAwake) {
  Rig rig(false);
  Decision awake = set(1200);
  awake.stays_awake = true;
  EXPECT_EQ(rig.tick(awake, at(1s, true)).decision, awake);
  EXPECT_EQ(rig.tick(set(1200), at(2s, true)).rule, Rule::idle);
  EXPECT_EQ(rig.tick(awake, at(3s, true)).decision, awake);
}

TEST(Safety, APublishedPolicyIsNeverParked) {
  Rig rig(true);
  rig.tick(set(1300), at(0s));
  for (int i = 1; i < 50; ++i) {
    EXPECT_EQ(rig.tick(kHold, at(i * 1s, i % 7 != 0)).rule, Rule::none);
    EXPECT_EQ(rig.locked, 1300_MHz);
  }
}

// A power limit leaves the clock to the GPU: nothing parks it, until the policy sets a clock.
TEST(Safety, AGpuUnderAPowerLimitIsNotParked) {
  Rig rig(false);
  EXPECT_EQ(rig.tick(kCap, at(0s)).decision, kCap);
  for (int i = 1; i < 50; ++i) {
    const bool idle = i % 7 != 0;
    const Decision said = i % 2 == 0 ? kCap : kHold;
    EXPECT_EQ(rig.tick(said, at(i * 1s, idle)).decision, said);
    EXPECT_EQ(rig.locked, std::nullopt);
  }
  rig.tick(set(1300), at(60s));
  EXPECT_EQ(rig.tick(kHold, at(61s, true)).rule, Rule::idle);
  // A policy that goes over to a limit while parked gives the clock back, for good.
  EXPECT_EQ(rig.tick(kCap, at(62s, true)).decision, kCap);
  EXPECT_EQ(rig.locked, std::nullopt);
  EXPECT_EQ(rig.tick(kHold, at(63s)).rule, Rule::none);
}

TEST(Safety, AHotGpuUnderAPowerLimitIsLockedUntilItIsCool) {
  Rig rig(false);
  rig.tick(kCap, at(0s));
  const Clamped hot = rig.tick(kCap, at(1s, false, true));
  EXPECT_EQ(hot.rule, Rule::thermal);
  EXPECT_EQ(hot.decision.kind, Kind::set);
  EXPECT_EQ(rig.locked, rig.top);
  for (int i = 2; rig.top < 1500_MHz; ++i) rig.tick(kCap, at(i * 1s));
  EXPECT_EQ(rig.locked, std::nullopt);
  EXPECT_EQ(rig.tick(kCap, at(100s)).decision, kCap);
}

// A working GPU is at the parked clock only if the policy itself asked for that clock: the newest
// thing it said since the GPU last worked was "set to the lowest".
RC_GTEST_PROP(SafetyProperty, WakingNeverLeavesTheParkedClock, (unsigned seed)) {
  std::mt19937_64 random(seed);
  Rig rig(false);
  Decision said = kHold;  // the policy's newest wish that is not a hold
  bool asleep = false;
  for (int tick = 0; tick < 300; ++tick) {
    if (random() % 12 == 0) asleep = !asleep;
    Decision decision = kHold;
    if (random() % 4 == 0) decision = set(static_cast<double>(900 + random() % 700));
    if (random() % 10 == 0) decision = kRelease;
    if (random() % 10 == 0) decision = set(1000);
    Estimate e = at(tick * 200ms, asleep, random() % 60 < 10);
    if (random() % 20 == 0) e.freshness = Freshness::stale;
    if (random() % 40 == 0) e.freshness = Freshness::expired;
    const bool spoke = e.freshness == Freshness::fresh && decision.kind != Kind::hold;
    if (spoke) said = decision;
    rig.tick(decision, e);
    RC_ASSERT((!rig.locked || (*rig.locked >= 1000_MHz && *rig.locked <= 1500_MHz)));
    if (asleep || e.freshness != Freshness::fresh) continue;
    if (rig.locked == 1000_MHz)
      RC_ASSERT((rig.top == 1000_MHz || (said.kind == Kind::set && said.clock <= 1000_MHz)));
  }
}

// --- Heat ----------------------------------------------------------------------------------------

TEST(Safety, TheTopComesDownWhileHotAndReturns) {
  Rig rig(true);
  const Decision all_out = set(1500);
  rig.tick(all_out, at(0s));
  Megahertz last = rig.top;
  EXPECT_EQ(last, 1500_MHz);
  for (int i = 1; i <= 10; ++i) {
    rig.tick(all_out, at(i * 1s, false, true));
    EXPECT_LT(rig.top, last);
    EXPECT_EQ(rig.locked, rig.top);
    last = rig.top;
    rig.tick(all_out, at(i * 1s + 200ms, false, true));
    EXPECT_EQ(rig.top, last) << "one step a second";
  }
  for (int i = 0; i < 100; ++i) rig.tick(all_out, at(11s + i * 1s, false, true));
  EXPECT_EQ(rig.locked, 1000_MHz);
  for (int i = 0; i < 60; ++i) {
    const Megahertz before = rig.top;
    rig.tick(all_out, at(200s + i * 1s));
    EXPECT_LE(rig.top - before, 20_MHz) << "it returns as it went";
  }
  EXPECT_EQ(rig.locked, 1500_MHz);
}

TEST(Safety, AHotGpuIsLimitedWhateverThePolicySays) {
  for (const Decision& decision : {set(1500), kHold, kRelease}) {
    Rig rig(true);
    rig.tick(set(1500), at(0s));
    const Clamped out = rig.tick(decision, at(1s, false, true));
    EXPECT_EQ(out.rule, Rule::thermal);
    EXPECT_LT(rig.locked, 1500_MHz);
    EXPECT_EQ(rig.locked, rig.top);
  }
  Rig below(true);
  below.tick(set(1100), at(0s));
  EXPECT_EQ(below.tick(kHold, at(1s, false, true)).rule, Rule::none);
}

// Never above the lowered top, whatever is decided; while it is lowered a GPU is never unlocked.
RC_GTEST_PROP(SafetyProperty, NeverAboveTheLoweredTop, (unsigned seed)) {
  std::mt19937_64 random(seed);
  Rig rig(seed % 2 == 0);
  bool hot = false;
  for (int tick = 0; tick < 300; ++tick) {
    if (random() % 15 == 0) hot = !hot;
    Decision decision = kHold;
    if (random() % 3 == 0) decision = set(static_cast<double>(900 + random() % 700));
    if (random() % 10 == 0) decision = kRelease;
    rig.tick(decision, at(tick * 200ms, random() % 10 == 0, hot));
    if (rig.top < 1500_MHz) RC_ASSERT((rig.locked && *rig.locked <= rig.top));
  }
}

// --- Bounds --------------------------------------------------------------------------------------

TEST(Safety, ABoundIsTheNextLowerClockAndNeverBelowTheEnvelope) {
  Rig rig(false);
  rig.tick(set(1500), at(0s));
  rig.safety.bound({{.source = "budget", .most = 1234}});
  const Clamped out = rig.tick(kHold, at(1s));
  EXPECT_EQ(out.rule, Rule::envelope);
  EXPECT_EQ(rig.locked, 1230_MHz);
  rig.safety.bound({{.source = "budget", .most = 1}});
  rig.tick(kHold, at(2s));
  EXPECT_EQ(rig.locked, 1000_MHz);
  rig.safety.bound({});
  rig.tick(set(1500), at(3s));
  EXPECT_EQ(rig.locked, 1500_MHz);
}

TEST(Safety, BoundsIntersectAndTheTopHoldsWhereTheyContradict) {
  Rig rig(false);
  rig.safety.bound({{.source = "promise", .least = 1095}, {.source = "budget", .most = 1300}});
  EXPECT_EQ(rig.tick(set(1000), at(0s)).rule, Rule::envelope);
  EXPECT_EQ(rig.locked, 1100_MHz);
  rig.tick(set(1500), at(1s));
  EXPECT_EQ(rig.locked, 1300_MHz);
  rig.safety.bound({{.source = "promise", .least = 1400},
                    {.source = "budget", .most = 1300},
                    {.source = "brief", .most = 1200, .until = Instant(3s)}});
  for (const int second : {2, 3}) {
    rig.tick(set(1000), at(second * 1s));
    EXPECT_EQ(rig.locked, second < 3 ? 1200_MHz : 1300_MHz);
  }
  rig.safety.bound({{.source = "promise", .least = 1400}});
  rig.tick(kHold, at(4s));
  EXPECT_EQ(rig.locked, 1400_MHz);
}

// The lower of the two, as it is named.
TEST(Safety, HeatIsABoundAmongOthers) {
  Rig rig(false);
  rig.tick(set(1500), at(0s));
  rig.safety.bound({{.source = "budget", .most = 1400}});
  EXPECT_EQ(rig.tick(set(1500), at(1s, false, true)).rule, Rule::envelope);
  EXPECT_EQ(rig.locked, 1400_MHz);
  for (int i = 2; rig.top == 1400_MHz; ++i) rig.tick(set(1500), at(i * 1s, false, true));
  EXPECT_EQ(rig.tick(set(1500), at(100s)).rule, Rule::thermal);
}

TEST(Safety, APowerLimitHasItsOwnBounds) {
  Rig rig(false);
  rig.safety.bound({{.source = "budget", .knob = kPowerLimit, .most = 150}});
  const Clamped out = rig.tick(kCap, at(0s));
  EXPECT_EQ(out.rule, Rule::envelope);
  EXPECT_EQ(out.decision.power_limit, Watts(150));
  EXPECT_EQ(rig.tick(set(1500), at(1s)).rule, Rule::none);
}

// Whatever the policy says, a GPU that is released or capped by power, too.
RC_GTEST_PROP(SafetyProperty, NeverAboveTheBound, (unsigned seed)) {
  std::mt19937_64 random(seed);
  Rig rig(seed % 2 == 0);
  for (int tick = 0; tick < 300; ++tick) {
    // Any number of them, of which the lowest counts; a `least` never raises the top.
    std::optional<Megahertz> bound;
    std::vector<EnvelopeBound> bounds;
    for (std::size_t i = random() % 4; i > 0; --i) {
      EnvelopeBound& each = bounds.emplace_back();
      if (random() % 2 == 0) each.least = static_cast<double>(900 + random() % 700);
      if (random() % 3 == 0) continue;
      each.most = static_cast<double>(900 + random() % 700);
      bound = std::min(bound.value_or(Megahertz(*each.most)), Megahertz(*each.most));
    }
    rig.safety.bound(bounds);
    Decision decision = kHold;
    if (random() % 3 == 0) decision = set(static_cast<double>(900 + random() % 700));
    if (random() % 10 == 0) decision = random() % 2 == 0 ? kRelease : kCap;
    rig.tick(decision, at(tick * 200ms, random() % 10 == 0, random() % 7 == 0));
    if (!bound || *bound >= 1500_MHz) continue;
    RC_ASSERT(rig.locked);
    RC_ASSERT(*rig.locked <= std::max(*bound, 1000_MHz));
  }
}

// --- Rate ----------------------------------------------------------------------------------------

TEST(Safety, LoweringIsLimitedAndRaisingIsNot) {
  Rig rig(false);
  rig.tick(set(1500), at(0s));
  EXPECT_EQ(rig.tick(set(1400), at(200ms)).rule, Rule::none);
  const Clamped held = rig.tick(set(1300), at(1100ms));
  EXPECT_EQ(held.rule, Rule::rate_limit);
  EXPECT_EQ(held.decision.kind, Kind::hold);
  EXPECT_EQ(rig.tick(set(1450), at(1150ms)).rule, Rule::none);
  EXPECT_EQ(rig.locked, 1450_MHz);
  EXPECT_EQ(rig.tick(set(1300), at(1200ms)).rule, Rule::none);
  EXPECT_EQ(rig.locked, 1300_MHz);
}

RC_GTEST_PROP(SafetyProperty, LowersAtMostOnceASecondAndRaisesAtOnce, (unsigned seed)) {
  std::mt19937_64 random(seed);
  const bool as_published = seed % 4 == 0;
  Rig rig(as_published);
  std::optional<Duration> lowered;
  Duration time{};
  for (int tick = 0; tick < 300; ++tick) {
    time += std::chrono::milliseconds(random() % 500);
    const Decision decision = set(static_cast<double>(1000 + random() % 51 * 10));
    const auto before = rig.locked;
    rig.tick(decision, at(time));
    if (as_published || !before || decision.clock >= *before)
      RC_ASSERT(rig.locked == decision.clock);
    if (as_published || !before || *rig.locked >= *before) continue;
    RC_ASSERT((!lowered || time - *lowered >= Duration(1s)));
    lowered = time;
  }
}

// A policy that says a lower clock once and then holds gets it when the time has come.
TEST(Safety, ALoweringThatCameTooSoonIsPutOffNotLost) {
  Rig rig(false);
  rig.tick(set(1500), at(0s));
  rig.tick(set(1400), at(1s));
  EXPECT_EQ(rig.tick(set(1200), at(1500ms)).rule, Rule::rate_limit);
  EXPECT_EQ(rig.tick(kHold, at(1700ms)).rule, Rule::rate_limit);
  EXPECT_EQ(rig.locked, 1400_MHz);
  rig.tick(kHold, at(2s));
  EXPECT_EQ(rig.locked, 1200_MHz);
}

TEST(Safety, ANewWordReplacesWhatWasPutOff) {
  Rig rig(false);
  rig.tick(set(1500), at(0s));
  rig.tick(set(1400), at(1s));
  rig.tick(set(1200), at(1500ms));
  rig.tick(set(1450), at(1600ms));
  rig.tick(kHold, at(3s));
  EXPECT_EQ(rig.locked, 1450_MHz);
}

}  // namespace
}  // namespace derate
