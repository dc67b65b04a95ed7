#include "core/promise.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace derate {
namespace {

std::vector<Promise> some_promises() {
  return *rc::gen::container<std::vector<Promise>>(rc::gen::map(
      rc::gen::tuple(rc::gen::inRange(0, 6), rc::gen::inRange(0, 3), rc::gen::arbitrary<bool>()),
      [](const std::tuple<int, int, bool>& of) {
        const auto [loss, origin, every_phase] = of;
        return throughput(Fraction(loss / 20.0), std::string(1, static_cast<char>('a' + origin)),
                          every_phase);
      }));
}

// Whoever promised, in whatever order: no promise of the kind is broken by who keeps the strictest.
RC_GTEST_PROP(Promise, TheStrictestCountsInAnyOrder, ()) {
  std::vector<Promise> promises = some_promises();
  const auto least = strictest(promises, kThroughput);
  RC_ASSERT(least.has_value() == !promises.empty());
  for (const Promise& one : promises) {
    RC_ASSERT(max_loss(*least) <= max_loss(one));
    RC_ASSERT(least->every_phase || !one.every_phase);
  }
  std::reverse(promises.begin(), promises.end());
  RC_ASSERT(strictest(promises, kThroughput) == least);
}

// A shorter time is stricter; of equal times that of the larger share.
TEST(Promise, TheStrictestLatencyIsTheShortestAndThenTheSurest) {
  const Promise slow = latency("itl", 0.999, 0.1, "a"), fast = latency("itl", 0.9, 0.05, "b"),
                sure = latency("itl", 0.99, 0.05, "c");
  const std::vector<Promise> promises = {slow, fast, sure, throughput(Fraction(0.01), "rule")};
  EXPECT_EQ(strictest(promises, kLatency), sure);
  EXPECT_EQ(sure.what, "itl");
  EXPECT_FALSE(kLatency.is_stricter(sure, sure));
  EXPECT_EQ(strictest_latency(promises, "itl"), sure);
  EXPECT_FALSE(strictest_latency(promises, "ttft"));
}

TEST(Promise, AnotherKindIsNotCompared) {
  const PromiseKind other{
      "energy", [](const Promise& a, const Promise& b) { return a.values[0] < b.values[0]; }};
  const std::vector<Promise> promises = {{.kind = &other, .values = {0.001}},
                                         throughput(Fraction(0.1), "rule")};
  EXPECT_EQ(strictest(promises, kThroughput), promises[1]);
  EXPECT_EQ(strictest(promises, other), promises[0]);
  EXPECT_EQ(strictest(std::span(promises).first(1), kThroughput), std::nullopt);
}

}  // namespace
}  // namespace derate
