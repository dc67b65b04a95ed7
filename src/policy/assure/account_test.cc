#include "policy/assure/account.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr double kTopMhz = 1530;
const AssureOptions kAccountOptions{.highest = Megahertz(kTopMhz), .delta = 0.1, .tick = 0.2};

Account account_of(double delta, double saved_s = 0) {
  Account out{.work = std::make_shared<WorkAccount>()};
  out.take_promise({}, delta);
  out.work->begin(saved_s);
  return out;
}

Estimate estimate_at(double mhz, double watts = 200) {
  Estimate out;
  out.sm_clock = Megahertz(mhz);
  out.gpu_utilisation = Fraction(1);
  out.power = Watts(watts);
  return out;
}

// Who holds what the account says keeps the promise, however the work was before.
RC_GTEST_PROP(AssureAccount, WhatIsPromisedMakesUpForWhatWasLost, ()) {
  const double delta = *rc::gen::inRange(2, 31) / 100.0;
  Account account = account_of(delta, -*rc::gen::inRange(0, 10) / 10.0);
  for (int i = 0; i < 1500; ++i)
    account.count(std::min(1.0, std::exp(account.promised(account.earned(false)))), 200ms);
  RC_ASSERT(account.work->saved_s() > -0.05);
  RC_ASSERT(account.promised(account.earned(false)) <= std::log(1 - delta) + 0.005);
}

TEST(AssureAccount, WhatWasEarnedMayBeSpentUnlessEachPhaseHasItsPromise) {
  Account account = account_of(0.1, 1);
  EXPECT_GT(account.earned(false), 0);
  EXPECT_LT(account.promised(account.earned(false)), std::log(0.9));
  EXPECT_EQ(account.earned(true), 0);
  account.take_promise({.promises = {throughput(Fraction(0.1), "rule", true)}}, 0.2);
  EXPECT_EQ(account.earned(false), 0);
  EXPECT_EQ(account.promised(0), std::log(0.9));
}

// Another domain that leaves 95 % of the performance has spent half of what may be lost.
TEST(AssureAccount, WhatAnotherDomainSpendsIsNotTheClocks) {
  Account account = account_of(0.1);
  account.count(1, 200ms);
  account.work->count(1, 0.95, 0.9, 0.2);
  EXPECT_NEAR(account.promised(0), std::log(0.9 / 0.95), 1e-12);
}

TEST(AssureAccount, MeasuredWorkTakesThePlaceOfWhatWasCounted) {
  Account account = account_of(0.1);
  for (int i = 0; i < 5; ++i) account.count(0.8, 200ms);
  account.hear_beat();
  const double before = account.work->saved_s();
  account.count_measured(9.5, {std::log(10.0), 0.0}, 2);
  EXPECT_NEAR(account.work->saved_s() - before, 0.95 * std::exp(-2 * 0.002) - 0.8, 1e-9);
  const double after = account.work->saved_s();
  account.count_measured(9.5, {std::log(10.0), 0.2}, 2);  // the rate there is not known
  EXPECT_EQ(account.work->saved_s(), after);
}

TEST(AssureAccount, AJobsFirstKernelsRanAtTheClockAtWhichTheGpuWasParked) {
  Account account = account_of(0.1);
  account.begin(estimate_at(kTopMhz / 2), kAccountOptions);
  EXPECT_NEAR(account.work->saved_s(), -0.5 * 0.25, 1e-12);
  Estimate unread = estimate_at(kTopMhz / 2);
  unread.gpu_utilisation = Fraction(0);
  unread.launching = true;
  account.begin(unread, kAccountOptions);
  EXPECT_NEAR(account.work->saved_s(), -0.5 * 0.65, 1e-12);
}

TEST(AssureAccount, ProbingIsBoundedByAShareOfTheJob) {
  Account account = account_of(0.1);
  EXPECT_TRUE(account.may_probe(0s, false, 1s));
  account.probed = 4s;
  EXPECT_FALSE(account.may_probe(0s, false, 1s));
  EXPECT_TRUE(account.may_probe(0s, true, 1s));
  EXPECT_TRUE(account.may_probe(600s, false, 1s));
}

// At the highest clock, and where the power limit holds it, nothing is saved.
TEST(AssureAccount, OnlyALowerClockSaves) {
  const auto ratio = [](double x) { return Belief{0.5 * x, 0}; };
  const auto saved = [&](double asked, double held, bool capped) {
    Estimate estimate = estimate_at(held);
    if (capped) estimate.throttle_reasons = throttle::kSwPowerCap;
    Spending to;
    count_spending(to, estimate, {1s, Megahertz(asked), Megahertz(900), false}, kAccountOptions);
    const Saving out = to.saving(ratio, ratio);
    return (out.energy_at_highest - out.energy).value();
  };
  EXPECT_EQ(saved(kTopMhz, kTopMhz, false), 0);
  EXPECT_GT(saved(1000, 1000, false), 0);
  EXPECT_EQ(saved(1200, 1000, true), 0);
  EXPECT_EQ(saved(1000, 500, false), saved(1000, 900, false));  // below the envelope
}

}  // namespace
}  // namespace derate
