#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "policy/registry/test_policy.h"
#include "signal/serving/test_engine.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// The policy on an engine that decodes at an even pace: looked at each 0.1 s, its metrics each
// 0.2 s.
struct Governed {
  std::unique_ptr<Policy> policy = *make_test_policy("slo", kA100);
  Envelope envelope = test_envelope(kA100);
  TestEngine engine;
  Estimate estimate = test_reading(1410, 100, 50, 200);
  double watts = 200;
  int looks = 0;
  bool answers = true;  // the engine's metrics
  std::vector<Promise> promises = {latency("itl", 0.99, 0.05)};

  Decision look(double running = 4, double step_s = 0.03) {
    estimate.time += 100ms;
    if (++looks % 2 == 0 && answers) {
      engine.decode(std::floor(0.2 / step_s), running, step_s);
      estimate.work.serving = engine.look(estimate.time);
    }
    estimate.work.promises = promises;
    estimate.power = Watts(watts);
    const Decision out = policy->decide(estimate, envelope);
    estimate.sm_clock = out.clock;
    return out;
  }
  Decision look_for(Duration time, double running = 4, double step_s = 0.03) {
    Decision out;
    for (Instant end = estimate.time + time; estimate.time < end;) out = look(running, step_s);
    return out;
  }
  Megahertz top() const { return envelope.highest(); }
};

std::string why(const Decision& decision) { return describe(decision.reason); }

TEST(Slo, LowersTheClockWhereTheLatencyAllowsIt) {
  Governed it;
  EXPECT_LT(it.look_for(60s).clock, it.top());
}

TEST(Slo, WithoutAPromiseTheHighestClockIsHeld) {
  Governed it;
  it.promises = {throughput(Fraction(0.1), "rule")};
  const Decision last = it.look_for(60s);
  EXPECT_EQ(last.clock, it.top());
  EXPECT_EQ(why(last), "no latency is promised: the highest clock");
}

// A promise of something else that is timed is not taken for one of tokens.
TEST(Slo, APromiseOfFirstTokensIsNotTakenForOneOfTokens) {
  Governed it;
  it.promises = {latency("ttft", 0.99, 1)};
  EXPECT_EQ(why(it.look_for(60s)), "no latency is promised: the highest clock");
}

// Metrics that go stale raise the clock within two seconds, and the reason says so.
TEST(Slo, StaleMetricsRaiseTheClockWithinTwoSeconds) {
  Governed it;
  ASSERT_LT(it.look_for(60s).clock, it.top());
  it.answers = false;
  const Decision last = it.look_for(2300ms);
  EXPECT_EQ(last.clock, it.top());
  EXPECT_EQ(why(last), "the engine's metrics are too old: the highest clock");
}

TEST(Slo, RequestsThatWaitRaiseTheClockAtOnce) {
  Governed it;
  ASSERT_LT(it.look_for(60s).clock, it.top());
  it.engine.state.waiting = 2;
  const Decision last = it.look_for(200ms);
  EXPECT_EQ(last.clock, it.top());
  EXPECT_EQ(why(last), "2 requests wait: the highest clock");
}

// The power says that a prompt is read before the metrics do.
TEST(Slo, APromptRaisesTheClockAtOnce) {
  Governed it;
  ASSERT_LT(it.look_for(60s).clock, it.top());
  it.watts = 240;
  it.answers = false;
  const Decision last = it.look();
  EXPECT_EQ(last.clock, it.top());
  EXPECT_EQ(why(last), "a prompt is read: the highest clock");
}

// An engine that has ended does not keep its GPU awake for ever; one that is just silent does.
TEST(Slo, AfterAMinuteOfSilenceTheGpuMayBeParked) {
  Governed it;
  EXPECT_TRUE(it.look_for(60s).stays_awake);
  it.answers = false;
  EXPECT_TRUE(it.look_for(120s).stays_awake);  // it still works
  it.estimate.idle = true;
  EXPECT_TRUE(it.look_for(30s).stays_awake);
  EXPECT_FALSE(it.look_for(40s).stays_awake);
}

// Metrics that have never come: an engine may still be starting.
TEST(Slo, WithoutMetricsTheHighestClockIsHeld) {
  Governed it;
  it.answers = false;
  const Decision last = it.look_for(30s);
  EXPECT_EQ(last.clock, it.top());
  EXPECT_TRUE(last.stays_awake);
  EXPECT_EQ(why(last), "no metrics of the engine are known: the highest clock");
}

// Without a request for a minute it may be parked, too.
TEST(Slo, AnEngineWithoutRequestsRestsAfterAMinute) {
  Governed it;
  it.look_for(10s);
  EXPECT_TRUE(it.look_for(50s, 0, 1e9).stays_awake);
  EXPECT_FALSE(it.look_for(20s, 0, 1e9).stays_awake);
}

// An engine that has no histogram yet, as before its first request, does not hold its GPU awake for
// ever.
TEST(Slo, AnEngineThatCountsNothingYetRestsAfterAMinute) {
  Governed it;
  it.engine.state.between_tokens.reset();
  it.answers = false;
  it.estimate.idle = true;
  const auto look_for = [&](Duration time) {
    Decision out;
    for (Instant end = it.estimate.time + time; it.estimate.time < end;) {
      it.estimate.work.serving = it.engine.look(it.estimate.time + 100ms);
      out = it.look();
    }
    return out;
  };
  EXPECT_TRUE(look_for(50s).stays_awake);
  EXPECT_FALSE(look_for(20s).stays_awake);
}

// In a dry run the clock stays the highest, however low the decision: that steps are no longer then
// says nothing of lower clocks.
TEST(Slo, ADryRunLearnsNothingOfClocksThatAreNotSet) {
  Governed set, dry;
  dry.policy = *make_test_policy("slo", kA100, {}, nullptr, std::make_shared<WorkAccount>(), true);
  Megahertz lowest = dry.top();
  for (int i = 0; i < 3000; ++i) {
    dry.estimate.sm_clock = dry.top();
    lowest = std::min(lowest, dry.look(4, 0.045).clock);
  }
  // 45 ms at the highest clock are 50 ms at nine tenths of it.
  EXPECT_GE(lowest, dry.top() * 0.85);
  EXPECT_LT(lowest, dry.top());
  // Steps that stay as short at a clock that is set do say so.
  EXPECT_LT(set.look_for(300s, 4, 0.045).clock, dry.top() * 0.85);
}

// Below the lowest edge nothing can be counted.
TEST(Slo, ALatencyBelowTheLowestEdgeIsNotBetOn) {
  Governed it;
  it.promises = {latency("itl", 0.99, 0.02)};
  const Decision last = it.look_for(60s, 4, 0.015);
  EXPECT_EQ(last.clock, it.top());
  EXPECT_EQ(why(last), "the engine counts no latency as short as 20 ms: the highest clock");
}

// Between two edges the stricter one is kept: at 80 ms promised it is that of 50 ms.
TEST(Slo, BetweenEdgesTheStricterOneIsKept) {
  Governed it;
  it.promises = {latency("itl", 0.99, 0.08)};
  EXPECT_EQ(it.look_for(60s, 4, 0.06).clock, it.top());
}

// An engine that is late at the highest clock already is not slowed further.
TEST(Slo, APromiseThatTheTopClockBreaksHoldsTheTopClock) {
  Governed it;
  EXPECT_EQ(it.look_for(60s, 4, 0.07).clock, it.top());
}

// Metrics that lie: whatever they say, the policy names an allowed clock.
RC_GTEST_PROP(Slo, AnyMetricsGiveAnAllowedClock, ()) {
  Governed it;
  for (int i = 0; i < 60; ++i) {
    if (*rc::gen::inRange(0, 4) == 0) {
      const double odd =
          *rc::gen::element(0.0, -5.0, 1e308, 1e-300, std::numeric_limits<double>::quiet_NaN());
      ServingState& state = it.engine.state;
      switch (*rc::gen::inRange(0, 6)) {
        case 0:
          state.running = odd;
          break;
        case 1:
          state.waiting = odd;
          break;
        case 2:
          state.steps = odd;
          break;
        case 3:
          state.between_tokens->counts[*rc::gen::inRange(0, 4)] = odd;
          break;
        case 4:
          state.first_token->sum_s = odd;
          break;
        default:
          state.between_tokens->sum_s = odd;
      }
    }
    const Decision decision = it.look();
    RC_ASSERT(decision.kind == Decision::Kind::set);
    RC_ASSERT(decision.clock >= it.envelope.lowest() && decision.clock <= it.top());
  }
}

}  // namespace
}  // namespace derate
