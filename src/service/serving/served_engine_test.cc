#include "service/serving/served_engine.h"

#include <gtest/gtest.h>

#include "core/latency_promise.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Instant kBegin{100s};

// Counts after so many times from token to token, of which so many are longer than the promised
// 50 ms. The engine counts nothing else.
ServiceReading reading(double tokens, double late) {
  ServiceReading out{.engine = "vLLM", .promise_possible = true};
  out.running = 1;
  out.waiting = 0;
  out.between_tokens = LatencyCountsView{
      .edges_seconds = {0.05, 0.1}, .counts = {tokens - late, tokens, tokens}, .sum_seconds = 1};
  return out;
}

std::string state_after(double tokens, double late) {
  ServedEngine engine({*parse_latency("itl p99 <= 50 ms")}, 0);
  EXPECT_EQ(engine.view(kBegin).promise_state, "not known");
  std::uint64_t runs = 0;
  engine.take(reading(0, 0), kBegin, {}, runs);
  engine.take(reading(tokens, late), kBegin + 10s, {}, runs);
  return engine.view(kBegin + 10s).promise_state;
}

// 99 tokens in time do not show that one in a hundred is late at most.
TEST(ServedEngine, FewTokensKeepNoPromise) {
  EXPECT_EQ(state_after(99, 0), "not known");
  EXPECT_EQ(state_after(99, 5), "not known");
  EXPECT_EQ(state_after(101, 1), "kept");
  EXPECT_EQ(state_after(101, 2), "broken");
}

TEST(ServedEngine, WithoutAPromiseNoneIsKept) {
  ServedEngine engine({}, 0);
  std::uint64_t runs = 0;
  engine.take(reading(0, 0), kBegin, {}, runs);
  EXPECT_EQ(engine.view(kBegin).promise_state, "");
}

}  // namespace
}  // namespace derate
