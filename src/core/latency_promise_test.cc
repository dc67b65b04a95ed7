#include "core/latency_promise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

TEST(LatencyPromise, IsReadAsPeopleWriteIt) {
  for (const char* text :
       {"itl p99 <= 50 ms", "itl p99<=50ms", "  ITL  P99 <= 0.05 s ", "itl p99.0 <= 0.050s"}) {
    const auto read = parse_latency(text);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->kind, &kLatency);
    EXPECT_EQ(read->what, "itl");
    EXPECT_DOUBLE_EQ(read->values[0], 0.99);
    EXPECT_DOUBLE_EQ(read->values[1], 0.05);
  }
}

TEST(LatencyPromise, AnErrorNamesTheTextAndWhatIsAllowed) {
  for (const char* text :
       {"", "itl", "itl p99", "itl p99 50 ms", "itl p99 <= ", "itl p99 <= 50", "itl p99 < 50 ms",
        "itl p100 <= 50 ms", "itl p10 <= 50 ms", "itl 99 <= 50 ms", "itl p99 <= 0 ms",
        "itl p99 <= 61 s", "itl p99 <= 50 ms 3", "itl p99 <= nan ms", "e2e p99 <= 50 ms",
        "itl p99 <= -50 ms", "itl p99 <= 1e3 ms"}) {
    const auto read = parse_latency(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
    EXPECT_NE(read.error().message.find(fmt::format("promise \"{}\"", text)), std::string::npos);
    EXPECT_NE(read.error().message.find("itl p99 <= 50 ms"), std::string::npos);
  }
}

TEST(LatencyPromise, OneOfFirstTokensIsNotPossibleYet) {
  const auto read = parse_latency("ttft p99 <= 1 s");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("first tokens"), std::string::npos);
}

RC_GTEST_PROP(LatencyPromiseProp, ItsTextIsReadBack, ()) {
  const double percent = *rc::gen::inRange(5000, 10000) / 100.0;
  const double time = *rc::gen::inRange(1, 60'001) / 1000.0;
  const Promise promise = latency("itl", percent / 100, time);
  const auto back = parse_latency(latency_text(promise));
  RC_ASSERT(back.ok());
  RC_ASSERT(std::abs(back->values[0] - promise.values[0]) < 1e-7);
  RC_ASSERT(std::abs(back->values[1] - promise.values[1]) < 1e-6 * promise.values[1]);
}

}  // namespace
}  // namespace derate
