#include "service/serving/service_window.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "signal/serving/test_engine.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// The edge that the sorted values themselves give.
RC_GTEST_PROP(ServiceQuantile, IsTheEdgeAboveTheValue, ()) {
  const std::vector<double> edges{1, 2, 5, 10};
  LatencyHistogram counts{.edges_s = edges, .counts = std::vector<double>(5)};
  auto values = *rc::gen::container<std::vector<int>>(200, rc::gen::inRange(0, 14));
  for (const int value : values)
    for (std::size_t i = 0; i < counts.counts.size(); ++i)
      if (i == edges.size() || value <= edges[i]) counts.counts[i] += 1;
  std::sort(values.begin(), values.end());
  for (const double quantile : {0.5, 0.9, 0.99}) {
    const int value = values[static_cast<std::size_t>(std::ceil(quantile * 200 - 1e-9)) - 1];
    const auto above = std::lower_bound(edges.begin(), edges.end(), value);
    const auto expected = above == edges.end() ? std::nullopt : std::optional<double>(*above);
    RC_ASSERT(quantile_at_most(nullptr, counts, quantile) == expected);
  }
}

TEST(ServiceQuantile, OfTooFewIsNotKnown) {
  LatencyHistogram counts{.edges_s = {1}, .counts = {99, 99}};
  EXPECT_FALSE(quantile_at_most(nullptr, counts, 0.99));
  counts.counts = {100, 100};
  EXPECT_TRUE(quantile_at_most(nullptr, counts, 0.99));
}

// Ten seconds at a step of 20 ms, then ten in which every other step is late.
TEST(ServiceWindow, CountsWhatIsLateAndWhatTheClockCaused) {
  TestEngine engine;
  ServiceWindow window(8);
  EXPECT_FALSE(window.figures());
  double joules = 0;
  for (int i = 0; i <= 40; ++i) {
    const Instant now = Instant(std::chrono::seconds(100)) + i * 500ms;
    window.take_clock(now, i < 20 ? 1.0 : 0.5);
    window.take(engine.look(now), 0.05, Joules(joules += 100));
    if (i < 20) {
      engine.decode(20, 8, 0.02);
    } else {
      engine.decode(10, 8, 0.02);
      engine.decode(10, 8, 0.08);
    }
  }
  const auto figures = window.figures();
  ASSERT_TRUE(figures);
  EXPECT_DOUBLE_EQ(figures->window_seconds, 20);
  EXPECT_DOUBLE_EQ(*figures->tokens_per_second, 40 * 20 * 8 / 20.0);
  EXPECT_DOUBLE_EQ(*figures->joules_per_token, 40 * 100 / (40 * 20 * 8.0));
  EXPECT_DOUBLE_EQ(*figures->late_ratio, 0.25);
  // At half the clock an interval of 0.05 to 0.1 s may have been one of 0.025 to 0.05 s.
  EXPECT_GT(*figures->late_by_clock_ratio, 0.2);
  EXPECT_GT(*figures->late_at_most_ratio, 0.25);
  EXPECT_DOUBLE_EQ(*figures->itl_p50_at_most_seconds, 0.025);
  EXPECT_DOUBLE_EQ(*figures->itl_p99_at_most_seconds, 0.1);
}

// A step of decoding takes 4 J, a prompt of 500 tokens 50 J, a second of rest 40 J.
TEST(ServiceWindow, TellsPhasesApart) {
  TestEngine engine;
  ServiceWindow window({});
  double joules = 0;
  for (int i = 0; i <= 4 * 1200; ++i) {
    window.take(engine.look(Instant(std::chrono::seconds(100)) + i * 250ms), {}, Joules(joules));
    if (i == 4 * 60) {
      EXPECT_FALSE(window.figures()->joules_per_prompt_token);
    }
    const int prompts = i % 60 == 0 ? 1 + i / 60 % 3 : 0;
    const bool works = i % 60 < 15 + i / 60 % 30;
    for (int k = 0; k < prompts; ++k) engine.read_prompt(500, 0.05);
    const int running = 1 + i / 60 % 3;  // all of a burst begin and end together
    if (works) engine.decode(5, running, 0.04);
    engine.state.running = works && i % 60 != 14 + i / 60 % 30 ? running : 0;
    joules += 50 * prompts + (works ? 5 * 4 : 40 * 0.25);
  }
  const auto figures = window.figures();
  ASSERT_TRUE(figures && figures->joules_per_prompt_token && figures->joules_per_decoded_token);
  EXPECT_NEAR(*figures->joules_per_prompt_token, 0.1, 0.01);
  EXPECT_NEAR(*figures->joules_per_decoded_token, 2, 0.2);
  EXPECT_NEAR(*figures->joules_per_prompt_token, 0.1, 2 * *figures->joules_per_prompt_token_sd);
  EXPECT_GT(*figures->waiting_energy_ratio, 0.2);
}

TEST(ServiceWindow, IsOfTheLastTenMinutes) {
  TestEngine engine;
  ServiceWindow window({});
  for (int i = 0; i <= 3600; ++i) {
    window.take(engine.look(Instant(std::chrono::seconds(100 + i))), {}, {});
    engine.decode(10, 2, 0.02);
  }
  const auto figures = window.figures();
  ASSERT_TRUE(figures);
  EXPECT_GE(figures->window_seconds, 600);
  EXPECT_LE(figures->window_seconds, 620);
  EXPECT_DOUBLE_EQ(*figures->tokens_per_second, 20);
  EXPECT_FALSE(figures->late_ratio);
  EXPECT_FALSE(figures->joules_per_token);
}

TEST(ServiceWindow, BeginsAnewWithTheEngine) {
  TestEngine engine;
  ServiceWindow window({});
  for (int i = 0; i < 30; ++i) {
    window.take(engine.look(Instant(std::chrono::seconds(100 + i))), 0.05, {});
    engine.decode(10, 2, 0.02);
  }
  engine = {};
  window.take(engine.look(Instant(std::chrono::seconds(131))), 0.05, {});
  EXPECT_FALSE(window.figures());
  engine.decode(10, 2, 0.02);
  window.take(engine.look(Instant(std::chrono::seconds(132))), 0.05, {});
  EXPECT_DOUBLE_EQ(*window.figures()->tokens_per_second, 20);
}

}  // namespace
}  // namespace derate
