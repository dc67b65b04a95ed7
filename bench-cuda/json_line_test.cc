#include "json_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace derate::bench_cuda {
namespace {

TEST(JsonLine, KeepsOrderAndTypes) {
  EXPECT_EQ(json_line({{"a", "text"}, {"b", true}, {"c", std::int64_t{-3}}, {"d", 0.5}}),
            R"({"a": "text", "b": true, "c": -3, "d": 0.5})");
  EXPECT_EQ(json_line({}), "{}");
}

TEST(JsonLine, WritesDoublesSoThatTheyComeBack) {
  const double time = 1763737614.123456;
  EXPECT_EQ(json_line({{"t", time}}), R"({"t": 1763737614.123456})");
}

TEST(JsonLine, HasNoNumberForWhatIsNone) {
  EXPECT_EQ(json_line({{"a", std::nan("")}, {"b", -HUGE_VAL}}), R"({"a": null, "b": null})");
}

TEST(JsonLine, EscapesText) {
  EXPECT_EQ(json_line({{"a\"b", "c\\d\n\x1f"}}), R"({"a\"b": "c\\d\u000a\u001f"})");
}

}  // namespace
}  // namespace derate::bench_cuda
