#include "for_time.h"

#include <gtest/gtest.h>

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

TEST(ParseFor, TakesTheTimesThatAreAllowed) {
  EXPECT_EQ(*parse_for(""), Duration::max());
  EXPECT_EQ(*parse_for("10"), 10s);
  EXPECT_EQ(*parse_for("0.5s"), 500ms);
  EXPECT_EQ(*parse_for("2m"), 2min);
  EXPECT_EQ(*parse_for("1h"), 1h);
  EXPECT_EQ(*parse_for("1e9"), Duration(1'000'000'000s));
}

TEST(ParseFor, RefusesTheOthersByName) {
  for (const char* bad : {"0", "-1", "1.1e9", "nan", "ten", "10x", " "})
    EXPECT_EQ(parse_for(bad).error().message,
              "--for '" + std::string(bad) +
                  "': allowed is a time such as 10, 10s, 2m or 1h, up to 1e9 s");
}

}  // namespace
}  // namespace derate::cli
