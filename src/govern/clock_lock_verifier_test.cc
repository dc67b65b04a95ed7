#include "govern/clock_lock_verifier.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

const std::vector<Megahertz> kClocks{900_MHz, 1000_MHz, 1100_MHz, 1200_MHz, 1300_MHz, 1400_MHz};

class LockWatchTest : public testing::Test {
 protected:
  LockState look(double mhz, std::uint64_t reasons = 0, double busy = 1) {
    now_ += 200ms;
    Estimate estimate;
    estimate.time = now_;
    estimate.freshness = Freshness::fresh;
    estimate.sm_clock = Megahertz(mhz);
    estimate.gpu_utilisation = Fraction(busy);
    estimate.throttle_reasons = reasons;
    return watch_.look(estimate);
  }
  // For three seconds.
  LockState keep(double mhz, std::uint64_t reasons = 0, double busy = 1) {
    for (int i = 0; i < 14; ++i) look(mhz, reasons, busy);
    return look(mhz, reasons, busy);
  }

  Instant now_{};
  ClockLockVerifier watch_{kClocks};
};

TEST_F(LockWatchTest, ALockThatShowsWithinAStepIsEffective) {
  EXPECT_EQ(look(1400), LockState::none);
  watch_.locked(1100_MHz, now_);
  EXPECT_EQ(look(1400), LockState::unproven);
  EXPECT_EQ(look(1200), LockState::effective);
  EXPECT_EQ(keep(1000), LockState::effective);
}

TEST_F(LockWatchTest, ALockThatNeverShowsHasNoEffect) {
  watch_.locked(1100_MHz, now_);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(look(1400), LockState::unproven) << i;
  EXPECT_EQ(look(1400), LockState::without_effect);
  EXPECT_EQ(watch_.seen(), 1400_MHz);
  watch_.locked(1100_MHz, now_);  // tried again
  EXPECT_EQ(look(1100), LockState::effective);
}

TEST_F(LockWatchTest, AnIdleGpuProvesNothing) {
  watch_.locked(1100_MHz, now_);
  EXPECT_EQ(keep(900, 0, 0), LockState::unproven);
  EXPECT_EQ(keep(1400, throttle::kGpuIdle), LockState::unproven);
}

TEST_F(LockWatchTest, PowerAndHeatMayHoldTheClockBelowButNotAbove) {
  watch_.locked(1300_MHz, now_);
  EXPECT_EQ(keep(1000, throttle::kSwPowerCap), LockState::unproven);
  EXPECT_EQ(keep(1000, throttle::kHwThermalSlowdown), LockState::unproven);
  EXPECT_EQ(look(1300), LockState::effective);
  EXPECT_EQ(keep(1000, throttle::kSwPowerCap), LockState::effective);
  watch_.locked(1000_MHz, now_);
  EXPECT_EQ(keep(1400, throttle::kSwPowerCap), LockState::without_effect);
}

TEST_F(LockWatchTest, ADeviationThatStaysIsDriftAndOneThatPassesIsNot) {
  watch_.locked(1100_MHz, now_);
  look(1100);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(look(1400), LockState::effective);
    EXPECT_EQ(look(1400), LockState::effective);
    EXPECT_EQ(look(1100), LockState::effective);
  }
  EXPECT_EQ(keep(1400), LockState::drifted);
  EXPECT_EQ(look(1100), LockState::drifted);  // until it is locked again
  watch_.locked(1100_MHz, now_);
  EXPECT_EQ(look(1100), LockState::effective);
  watch_.released();
  EXPECT_EQ(keep(1400), LockState::none);
}

// As a user saw on Blackwell (open-gpu-kernel-modules#1314).
TEST_F(LockWatchTest, WhereTheMinimumIsARequestALowerClockProvesNothing) {
  watch_ = ClockLockVerifier(kClocks, true);
  watch_.locked(1200_MHz, now_);
  EXPECT_EQ(keep(900), LockState::unproven);
  EXPECT_EQ(look(1200), LockState::effective);
  EXPECT_EQ(keep(900), LockState::effective);
  EXPECT_EQ(keep(1400), LockState::drifted);
  watch_.locked(1200_MHz, now_);
  EXPECT_EQ(keep(1400), LockState::without_effect);
}

TEST_F(LockWatchTest, AHigherClockThatPassedDoesNotCountLater) {
  watch_.locked(1200_MHz, now_);
  look(1200);
  look(1400);
  keep(1000, throttle::kSwPowerCap);
  EXPECT_EQ(look(1400), LockState::effective);
  EXPECT_EQ(keep(1400), LockState::drifted);
}

// A GPU that does what it is told is never accused.
RC_GTEST_PROP(LockWatchProperty, AnObedientGpuIsNeverAccused, ()) {
  ClockLockVerifier watch(kClocks);
  Instant now{};
  Megahertz lock = kClocks.back(), old = lock;
  Instant since{};
  for (int i = 0; i < 200; ++i) {
    now += 100ms;
    if (*rc::gen::inRange(0, 10) == 0) {
      old = lock;
      lock = kClocks[*rc::gen::inRange<std::size_t>(0, kClocks.size())];
      since = now;
      watch.locked(lock, now);
    }
    Estimate estimate;
    estimate.time = now;
    estimate.freshness = Freshness::fresh;
    estimate.sm_clock = now - since < 300ms ? old : lock;  // the switch takes its time
    estimate.gpu_utilisation = Fraction(*rc::gen::inRange(0, 2));
    estimate.throttle_reasons = 0;
    const LockState state = watch.look(estimate);
    RC_ASSERT((state != LockState::without_effect && state != LockState::drifted));
  }
}

}  // namespace
}  // namespace derate
