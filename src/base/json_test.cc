#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json_limits.h"

namespace derate {
namespace {

TEST(JsonText, WhatDoesNotParseIsNull) {
  for (const char* text : {"", "{", "[1,]", "nan", "{} {}", "\xff"})
    EXPECT_TRUE(parse_json(text).is_null()) << text;
}

TEST(JsonText, KeepsTheOrderAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(json_text(parse_json(R"({"b":1,"a":[2]})")), R"({"b":1,"a":[2]})");
  EXPECT_EQ(json_text({{"name", "a\xff"}}), "{\"name\":\"a\xEF\xBF\xBD\"}");
  EXPECT_EQ(json_text({{"a", 1}}, 1), "{\n \"a\": 1\n}");
}

// What passes the limits is refused, however it is built; what does not is read as ever.
TEST(JsonLimits, AKeyThatIsThereTwiceIsRefused) {
  const auto twice = parse_json(R"({"a": 1, "b": {"a": 2}, "a": 3})", JsonLimits{});
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message, "'a' is there twice");
  EXPECT_TRUE(parse_json(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}]})", JsonLimits{}).ok());
}

TEST(JsonLimits, AreOfTheWholeText) {
  const auto wide = [](int keys) {
    std::string text = "[";
    for (int i = 0; i < keys; ++i) text += (i > 0 ? "," : "") + fmt::format("{{\"{}\":1}}", i);
    return text + "]";
  };
  const auto deep = [](int levels, const char* open, const char* close) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    text += "1";
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  const JsonLimits limits;
  for (const std::string& good : {wide(32), deep(8, "[", "]"), deep(8, "{\"a\":", "}")}) {
    ASSERT_TRUE(parse_json(good, limits).ok()) << good;
    EXPECT_EQ(*parse_json(good, limits), parse_json(good));
  }
  for (const std::string& bad : {wide(33), deep(9, "[", "]"), deep(9, "{\"a\":", "}"),
                                 std::string(65000, '['), wide(8000)}) {
    const auto read = parse_json(bad, limits);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
    EXPECT_EQ(read.error().message, "more than 32 keys or 8 levels: no more are allowed");
  }
  EXPECT_TRUE(parse_json("{", limits)->is_null());
}

}  // namespace
}  // namespace derate
