#include "base/json.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace derate
