#include "device/sim/serving/serving_engine.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace derate {
namespace {

std::vector<ServingRequest> drawn_arrivals() {
  std::vector<ServingRequest> out;
  double at_s = 0;
  const int count = *rc::gen::inRange(1, 40);
  for (int i = 0; i < count; ++i) {
    at_s += *rc::gen::inRange(0, 100) / 50.0;
    out.push_back({at_s, *rc::gen::inRange(1, 300), *rc::gen::inRange(1, 40)});
  }
  return out;
}

EngineLimits drawn_limits() {
  EngineLimits limits;
  limits.most_running = *rc::gen::inRange(1, 12);
  limits.step_tokens = *rc::gen::inRange(1, 200);
  // Some requests alone need more than that.
  limits.kv_tokens = *rc::gen::inRange(100, 2000);
  return limits;
}

double seconds_of(const StepLoad& load) {
  return 0.01 + 0.001 * load.sequences + 0.0001 * load.prompt_tokens;
}

// Runs the engine until it has nothing to do; `see` gets each step's load and its end.
template <class See>
double run_all(ServingEngine& engine, See see) {
  double now_s = 0;
  for (int steps = 0; steps < 1'000'000; ++steps) {
    const auto load = engine.begin(now_s);
    if (!load) {
      if (std::isinf(engine.next_arrival_s())) return now_s;
      now_s = engine.next_arrival_s();
      continue;
    }
    now_s += seconds_of(*load);
    engine.end(now_s);
    see(*load, now_s);
  }
  ADD_FAILURE() << "the engine never finishes";
  return now_s;
}

// --- properties ----------------------------------------------------------------------------------

// A request finishes as soon as it has its tokens at least: with their sum none has more.
RC_GTEST_PROP(ServingEngineProperty, EachRequestGetsItsTokens, ()) {
  const auto requests = drawn_arrivals();
  const EngineLimits limits = drawn_limits();
  ServingEngine engine(limits, requests);
  run_all(engine, [](const StepLoad&, double) {});
  const EngineCounters& counters = engine.counters();
  double prompts = 0, generated = 0;
  for (const ServingRequest& each : requests)
    prompts += each.prompt_tokens, generated += each.generated_tokens;
  const auto count = static_cast<double>(requests.size());
  RC_ASSERT(counters.finished == requests.size());
  RC_ASSERT(counters.generated_tokens == generated);
  RC_ASSERT(counters.prompt_tokens == prompts);
  RC_ASSERT(counters.first_token.count() == count);
  RC_ASSERT(counters.between_tokens.count() == generated - count);
  RC_ASSERT(counters.running == 0 && counters.waiting == 0 && counters.kv_share == 0);
}

RC_GTEST_PROP(ServingEngineProperty, LimitsHoldInEachStep, ()) {
  const auto requests = drawn_arrivals();
  const EngineLimits limits = drawn_limits();
  ServingEngine engine(limits, requests);
  run_all(engine, [&](const StepLoad& load, double) {
    const EngineCounters& counters = engine.counters();
    RC_ASSERT(load.sequences + load.prompt_tokens >= 1);
    RC_ASSERT(load.sequences + load.prompt_tokens <= limits.step_tokens);
    RC_ASSERT(load.sequences <= limits.most_running);
    RC_ASSERT(counters.running <= limits.most_running);
    RC_ASSERT(counters.running <= 1 || counters.kv_share <= 1);
  });
}

// First come, first served: neither limits nor preemption let a later request pass.
RC_GTEST_PROP(ServingEngineProperty, FirstTokensComeInTheOrderOfArrival, ()) {
  const auto requests = drawn_arrivals();
  ServingEngine engine(drawn_limits(), requests);
  run_all(engine, [](const StepLoad&, double) {});
  double before_s = 0, sum_s = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    RC_ASSERT(engine.first_token_s()[i].has_value());
    RC_ASSERT(*engine.first_token_s()[i] >= 0);
    const double at_s = requests[i].arrival_s + *engine.first_token_s()[i];
    RC_ASSERT(at_s >= before_s - 1e-9);
    before_s = at_s;
    sum_s += *engine.first_token_s()[i];
  }
  RC_ASSERT(std::abs(engine.counters().first_token.sum_s - sum_s) < 1e-6);
}

// At every moment a request that has come waits, runs or has finished.
RC_GTEST_PROP(ServingEngineProperty, NothingIsLost, ()) {
  const auto requests = drawn_arrivals();
  ServingEngine engine(drawn_limits(), requests);
  run_all(engine, [&](const StepLoad&, double now_s) {
    const auto came = std::count_if(requests.begin(), requests.end(),
                                    [&](const auto& each) { return each.arrival_s <= now_s; });
    const EngineCounters& counters = engine.counters();
    RC_ASSERT(counters.running + counters.waiting + static_cast<int>(counters.finished) == came);
  });
}

RC_GTEST_PROP(ServingEngineProperty, ALongPromptIsReadInChunks, ()) {
  const std::vector<ServingRequest> one = {
      {0, *rc::gen::inRange(1, 5000), *rc::gen::inRange(1, 10)}};
  const EngineLimits limits{.step_tokens = *rc::gen::inRange(1, 600)};
  ServingEngine engine(limits, one);
  std::uint64_t reading = 0;
  run_all(engine, [&](const StepLoad& load, double) {
    if (load.prompt_tokens > 0) ++reading;
    RC_ASSERT(load.prompt_tokens == 0 || load.sequences == 0);
  });
  const int chunks = (one[0].prompt_tokens + limits.step_tokens - 1) / limits.step_tokens;
  RC_ASSERT(reading == static_cast<std::uint64_t>(chunks));
  RC_ASSERT(engine.counters().steps == reading + one[0].generated_tokens - 1);
}

// --- examples ------------------------------------------------------------------------------------

TEST(ServingEngine, PreemptsTheLastAndForgetsNothing) {
  const std::vector<ServingRequest> three = {{0, 50, 60}, {0, 50, 60}, {0, 50, 60}};
  ServingEngine engine({.kv_tokens = 200}, three);
  run_all(engine, [](const StepLoad&, double) {});
  EXPECT_GT(engine.counters().preemptions, 0U);
  EXPECT_EQ(engine.counters().finished, 3U);
  EXPECT_EQ(engine.counters().generated_tokens, 180);
}

// As vLLM does it: what was preempted does not begin to read again in the same step.
TEST(ServingEngine, BeginsNothingInAStepThatPreempts) {
  const std::vector<ServingRequest> two = {{0, 90, 60}, {0, 90, 60}};
  ServingEngine engine({.step_tokens = 20, .kv_tokens = 200}, two);
  std::uint64_t before = 0;
  run_all(engine, [&](const StepLoad& load, double) {
    const std::uint64_t now = engine.counters().preemptions;
    if (std::exchange(before, now) < now && load.sequences > 0) {
      EXPECT_EQ(load.prompt_tokens, 0);
    }
  });
  EXPECT_GT(before, 0U);
}

// The room is used to its last token: contexts of 50 + 9 tokens, the last token needs none.
TEST(ServingEngine, PreemptsNothingWhereThereIsRoom) {
  const std::vector<ServingRequest> two = {{0, 50, 10}, {0, 50, 10}};
  for (const double room : {118.0, 117.0}) {
    ServingEngine engine({.kv_tokens = room}, two);
    run_all(engine, [](const StepLoad&, double) {});
    EXPECT_EQ(engine.counters().preemptions, room < 118 ? 1U : 0U);
  }
}

// A prompt that is read in chunks takes room as decoding does.
TEST(ServingEngine, AChunkIsNotReadWhereThereIsNoRoom) {
  const std::vector<ServingRequest> two = {{0, 500, 200}, {0, 800, 1}};
  ServingEngine engine({.step_tokens = 100, .kv_tokens = 1000}, two);
  run_all(engine, [&](const StepLoad&, double) {
    EXPECT_TRUE(engine.counters().running <= 1 || engine.counters().kv_share <= 1);
  });
  EXPECT_EQ(engine.counters().finished, 2U);
}

TEST(ServingEngine, ShowsTheEndOfItsLastStep) {
  const std::vector<ServingRequest> two = {{0, 100, 2}, {0.5, 100, 2}};
  ServingEngine engine({.kv_tokens = 1000}, two);
  EXPECT_EQ(engine.begin(0), (StepLoad{.prompt_tokens = 100}));
  EXPECT_EQ(engine.counters().running, 0);
  engine.arrive(0.7);
  EXPECT_EQ(engine.counters().waiting, 0);
  engine.end(1);
  EXPECT_EQ(engine.counters().running, 1);
  EXPECT_EQ(engine.counters().waiting, 1);
  EXPECT_DOUBLE_EQ(engine.counters().kv_share, 0.1);
  EXPECT_EQ(engine.begin(1), (StepLoad{1, 100, 100}));
  EXPECT_EQ(engine.counters().waiting, 1);
  engine.end(2);
  EXPECT_EQ(engine.counters().running, 1);  // the first has its two tokens
  EXPECT_EQ(engine.counters().waiting, 0);
  EXPECT_EQ(*engine.first_token_s()[1], 1.5);
}

TEST(ServingEngine, CountsAnEdgeWithWhatIsBelowIt) {
  LatencyCounts counts(vllm_token_edges());
  for (const double each : {0.04, 0.05, 0.051, 100.0}) counts.add(each);
  EXPECT_EQ(counts.above(0.05), 2);
  EXPECT_EQ(counts.above(80), 1);
  EXPECT_EQ(counts.count(), 4);
  EXPECT_DOUBLE_EQ(counts.sum_s, 100.141);
}

}  // namespace
}  // namespace derate
