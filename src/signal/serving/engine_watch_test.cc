#include "signal/serving/engine_watch.h"

#include <gtest/gtest.h>

#include <limits>

#include "signal/serving/test_engine.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

TEST(EngineWatch, SaysWhatHappenedBetweenTwoLooks) {
  TestEngine engine;
  EngineWatch watch;
  engine.decode(100, 4, 0.03);
  EXPECT_FALSE(watch.look(engine.look(Instant(1s))));  // nothing is known of before
  engine.decode(10, 3, 0.06);
  engine.read_prompt(500, 0.4);
  const auto delta = watch.look(engine.look(Instant(1250ms)));
  ASSERT_TRUE(delta);
  EXPECT_EQ(delta->span, 250ms);
  EXPECT_EQ(delta->steps, 11);
  EXPECT_EQ(delta->generated_tokens, 30);
  EXPECT_EQ(delta->prompt_tokens, 500);
  EXPECT_EQ(delta->first_tokens, 1);
  EXPECT_NEAR(delta->first_token_s, 0.4, 1e-12);
  EXPECT_EQ(delta->between_tokens, (std::vector<double>{0, 0, 30, 0}));
  EXPECT_EQ(delta->intervals, 30);
  EXPECT_NEAR(*delta->mean_interval_s(), 0.06, 1e-12);
}

// SGLang counts no steps.
TEST(EngineWatch, StepsThatAreNotCountedAreTokensOfEachThatRuns) {
  TestEngine engine;
  engine.state.steps.reset();
  EngineWatch watch;
  (void)watch.look(engine.look(Instant(1s)));
  *engine.state.generated_tokens += 40;
  engine.state.running = 4;
  EXPECT_EQ(watch.look(engine.look(Instant(2s)))->steps, 10);
}

TEST(EngineWatch, TheSameLookTwiceIsNoLook) {
  TestEngine engine;
  EngineWatch watch;
  const auto first = engine.look(Instant(1s));
  EXPECT_FALSE(watch.look(first));
  EXPECT_FALSE(watch.look(first));
  EXPECT_FALSE(watch.look(nullptr));
  EXPECT_EQ(watch.state(), first.get());
}

// An engine that began anew, by its run or by counts that fell, says nothing of the time between.
TEST(EngineWatch, AnEngineThatBeganAnewSaysNothingOfTheTimeBetween) {
  TestEngine engine;
  engine.decode(100, 4, 0.03);
  engine.read_prompt(100, 0.2);
  for (int what = 0; what < 8; ++what) {
    EngineWatch watch;
    (void)watch.look(engine.look(Instant(1s)));
    TestEngine later = engine;
    if (what == 0) later.state.run = 7;
    if (what == 1) *later.state.generated_tokens -= 1;
    if (what == 2) later.state.between_tokens->counts.back() -= 1;
    if (what == 3) later.state.first_token.reset();
    if (what == 4) later.state.between_tokens->edges_s[0] = 0.02;
    if (what == 5) later.state.steps = std::numeric_limits<double>::quiet_NaN();
    if (what == 6) later.state.between_tokens->counts[1] += 5;  // not cumulative
    if (what == 7) later.state.first_token->sum_s = 1e308;
    EXPECT_FALSE(watch.look(later.look(Instant(2s)))) << what;
    if (what < 5) EXPECT_TRUE(watch.look(later.look(Instant(3s)))) << what;
  }
}

}  // namespace
}  // namespace derate
