#include "run_engine.h"

#include <gtest/gtest.h>

#include "test_text.h"

namespace derate::cli {
namespace {

TEST(RunEngine, ItsSentenceHasThePromiseAndTheFigures) {
  ServiceView view{.name = "run",
                   .metrics = "http://127.0.0.1:8000/metrics",
                   .engine = "vLLM",
                   .promise = {"itl p99 <= 50 ms"},
                   .promise_state = "kept"};
  view.figures = ServiceFigures{.window_seconds = 60,
                                .tokens_per_second = 100,
                                .joules_per_token = 2.514,
                                .late_ratio = 0.00741,
                                .late_by_clock_ratio = 0.00031};
  EXPECT_EQ(engine_sentence(view),
            "engine vLLM: itl p99 <= 50 ms kept; 0.741 % of tokens late, 0.031 % by the clock; "
            "2.51 J a token; of the last 60 s");
  view.figures->joules_per_prompt_token = 0.0213, view.figures->joules_per_prompt_token_sd = 0.001;
  EXPECT_TRUE(has(engine_sentence(view), "2.51 J a token (about 0.021 ± 0.002 J a prompt token);"));
  view.figures->late_ratio = 0.021;
  view.promise_state = "broken";
  EXPECT_TRUE(has(engine_sentence(view), "itl p99 <= 50 ms BROKEN: 2.1 % late, 0.031 % by"));
}

TEST(RunEngine, WithoutMetricsItSaysSo) {
  EXPECT_EQ(engine_sentence({.name = "run",
                             .metrics = "http://127.0.0.1:8000/metrics",
                             .promise = {"itl p99 <= 50 ms"},
                             .promise_state = "not known",
                             .trouble = "its metrics were never read"}),
            "engine http://127.0.0.1:8000/metrics: itl p99 <= 50 ms not known; its metrics were "
            "never read");
}

TEST(RunEngine, ABadPromiseIsRefusedBeforeAnythingBegins) {
  SystemClock clock;
  const auto engine = RunEngine::start(
      {.metrics = "http://127.0.0.1:8000/metrics", .promise = {"ttft p99 <= 1 s"}}, clock);
  ASSERT_FALSE(engine.ok());
  EXPECT_TRUE(has(engine.error().message, "--promise"));
  const auto file = RunEngine::start({.metrics = "file:///etc/passwd"}, clock);
  ASSERT_FALSE(file.ok());
  EXPECT_TRUE(has(file.error().message, "--metrics: 'file:///etc/passwd'"));
}

}  // namespace
}  // namespace derate::cli
