#include "sim_engine.h"

#include <gtest/gtest.h>

#include <numeric>

#include "signal/serving/read_engine.h"

namespace derate::cli {
namespace {

fakenvml::EngineNow some_counts() {
  fakenvml::EngineNow now{.running = 3, .waiting = 2, .kv_share = 0.5};
  now.prompt_tokens = 4096;
  now.generated_tokens = 110;
  now.steps = 40;
  now.between_tokens[1] = 90;   // 10 to 25 ms
  now.between_tokens[19] = 10;  // above 80 s
  now.between_tokens_s = 1002;
  now.first_token[7] = 10;  // 80 to 100 ms
  now.first_token_s = 0.9;
  return now;
}

// By the reader of vLLM's pages.
TEST(SimEngine, ItsPageIsReadAsVllms) {
  const auto read = read_engine(engine_page(some_counts(), "llm"), nullptr, "");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->engine, "vLLM");
  EXPECT_EQ(read->model, "llm");
  EXPECT_TRUE(read->promise_possible);
  EXPECT_TRUE(read->missing.empty());
  const ServingState& state = read->state;
  EXPECT_EQ(state.running, 3);
  EXPECT_EQ(state.waiting, 2);
  EXPECT_EQ(state.kv_share, 0.5);
  EXPECT_EQ(state.steps, 40);
  EXPECT_EQ(state.between_tokens->counts[0], 0);
  EXPECT_EQ(state.between_tokens->counts[1], 90);
  EXPECT_EQ(state.between_tokens->counts.back(), 100);
  EXPECT_EQ(state.between_tokens->sum_s, 1002);
  EXPECT_EQ(state.first_token->counts.back(), 10);
}

TEST(SimEngine, ItsRequestHasWhatIsAsked) {
  SimJobOptions options;
  options.engine.burst = "60s,20s,3";
  options.engine.requests = 2.5;
  options.engine.running = 16;
  const auto request = engine_request(options, 1);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->gpu, 1u);
  EXPECT_EQ(request->engine.rate, 2.5);
  EXPECT_EQ(request->engine.burst_at_s, 60);
  EXPECT_EQ(request->engine.burst_s, 20);
  EXPECT_EQ(request->engine.burst_times, 3);
  EXPECT_EQ(request->engine.most_running, 16u);
  for (const char* wrong : {"60s", "60s,20s", "60s,20s,0.5", "a,b,c", "60s,20s,3,4", "-1s,2s,3"}) {
    options.engine.burst = wrong;
    EXPECT_FALSE(engine_request(options, 0).ok()) << wrong;
  }
}

}  // namespace
}  // namespace derate::cli
