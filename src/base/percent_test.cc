#include "base/percent.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

TEST(PercentEncoded, LeavesNothingThatMeansSomething) {
  EXPECT_EQ(percent_encoded("a b&c"), "a%20b%26c");
  EXPECT_EQ(percent_encoded("GPU-1_2.3~"), "GPU-1_2.3~");
  EXPECT_EQ(percent_encoded("+/?#\xc3\xa9"), "%2B%2F%3F%23%C3%A9");
}

RC_GTEST_PROP(PercentDecoded, IsTheInverse, (const std::string& text)) {
  RC_ASSERT(percent_decoded(percent_encoded(text)) == text);
}

TEST(PercentDecoded, RefusesWrongEscapes) {
  EXPECT_EQ(percent_decoded("a%2Cb c"), "a,b c");
  for (const char* wrong : {"%", "%2", "%zz", "%-1", "a%"}) EXPECT_FALSE(percent_decoded(wrong));
}

}  // namespace
}  // namespace derate
