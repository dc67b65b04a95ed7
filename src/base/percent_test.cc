#include "base/percent.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

TEST(PercentEncoded, LeavesNothingThatMeansSomething) {
  EXPECT_EQ(percent_encoded("a b&c"), "a%20b%26c");
  EXPECT_EQ(percent_encoded("GPU-1_2.3~"), "GPU-1_2.3~");
  EXPECT_EQ(percent_encoded("+/?#\xc3\xa9"), "%2B%2F%3F%23%C3%A9");
}

}  // namespace
}  // namespace derate
