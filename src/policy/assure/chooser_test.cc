#include "policy/assure/chooser.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

class Chosen {
 public:
  // Work whose DRAM activity follows its performance: of `slope` so much of the clock's.
  explicit Chosen(double slope) {
    for (const double x : {0.0, 0.3, 0.0, 0.3}) {
      const double performance = 1 - slope * (1 - std::exp(-x));
      ReadingBatch read;
      read.x = x;
      for (int i = 0; i < 20; ++i) {
        const double noise = i % 2 == 0 ? 1.001 : 0.999;
        read.of(Signal::dram).add(0.5 * performance * noise);
        read.gpu_utilisation.add(0.98);
        read.clock.add(options_.highest.value() * std::exp(-x));
      }
      if (!belief_.phase) belief_.make(read, options_.highest, "", {});
      learn(*belief_.phase, read, {});
      belief_.phase->curves.power.observe(x, Watts(500 * performance * std::exp(-1.4 * x)), 1e-4);
    }
    belief_.phase->recent.add(now_, 10);
  }
  Outlook outlook(bool restless = false) const {
    return {belief_, options_, envelope_, now_, restless};
  }
  double x_of(Megahertz clock) const { return options_.position(clock); }
  WorkBelief& belief() { return belief_; }

 private:
  Envelope envelope_ = test_envelope(kA100);
  AssureOptions options_{.highest = envelope_.highest(),
                         .delta = 0.1,
                         .confidence = 0.99,
                         .tick = 0.2,
                         .prior = "H200"};
  WorkBelief belief_{options_};
  Instant now_ = Instant{} + 10s;
};

// Whatever the work and the promise: the clock that is chosen keeps it, or is the highest; and a
// looser promise wants no higher clock.
RC_GTEST_PROP(Chooser, TheClockChosenKeepsThePromise, ()) {
  const Chosen work(*rc::gen::inRange(0, 101) / 100.0);
  Chooser chooser;
  Megahertz before = work.outlook().envelope.highest();
  for (const double delta : {0.01, 0.05, 0.1, 0.3}) {
    const double promised = std::log(1 - delta);
    const Megahertz clock = chooser.best(work.outlook(), promised).clock;
    RC_ASSERT(clock == work.outlook().envelope.highest() ||
              chooser.sure_at(clock, work.outlook()) >= promised);
    RC_ASSERT(clock <= before);
    before = clock;
  }
}

// Read for long at the clock that it holds, more is sure of it: it comes to rest no higher.
RC_GTEST_PROP(Chooser, WhatItWillHoldIsNoHigherThanWhatItHolds, ()) {
  const Chosen work(*rc::gen::inRange(0, 101) / 100.0);
  const double promised = std::log(1 - *rc::gen::inRange(1, 40) / 100.0);
  Chooser chooser;
  RC_ASSERT(will_hold(promised, work.outlook()) <= chooser.best(work.outlook(), promised).clock);
}

TEST(Chooser, AMixtureOfOnePhaseIsThatPhase) {
  const Chosen work(0.6);
  const auto one = prospects_of(*work.outlook().belief.phase, work.outlook());
  const auto mixture = prospects_of_mixture(work.outlook(true));
  ASSERT_EQ(one.size(), mixture.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].clock, mixture[i].clock);
    EXPECT_NEAR(one[i].lower_bound, mixture[i].lower_bound, 1e-9);
  }
}

TEST(Chooser, WorkThatTakesNoTurnsSharesNoLoss) {
  Chosen work(0.6);
  EXPECT_EQ(share_of_loss(work.outlook(), 1 / 0.9), std::nullopt);
  work.belief().known.push_back(*work.belief().phase);
  work.belief().phase->visits.earlier = 1;
  const auto share = share_of_loss(work.outlook(), 1 / 0.9);
  ASSERT_TRUE(share);
  EXPECT_LE(*share, 0);
}

TEST(Chooser, ALookCostsNoMoreThanItMay) {
  const Envelope envelope = test_envelope(kA100);
  for (const double may_cost : {0.0, 0.1, 0.3, 2.0}) {
    const Megahertz clock = probe_clock(envelope, 1.5, may_cost);
    EXPECT_LE((1 - clock / envelope.highest()) * 1.5, may_cost);
  }
  EXPECT_EQ(probe_clock(envelope, 1.5, 0), envelope.highest());
  EXPECT_EQ(probe_clock(envelope, 1.5, 2), envelope.lowest());
}

TEST(Chooser, AVisitThatCostsMoreThanItServesIsNotPaid) {
  const Chosen work(0.6);
  const auto clocks = work.outlook().envelope.clocks();
  const Megahertz asked = clocks[clocks.size() / 2];
  Chooser chooser;
  EXPECT_FALSE(chooser.refresh_pays(work.outlook(), asked, std::log(0.9), {1e9, 1}));
}

}  // namespace
}  // namespace derate
