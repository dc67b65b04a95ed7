// Attribution holds no more after a day than after an hour; the soak has a week.
#include "churn.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace derate {
namespace {

using namespace std::chrono_literals;

TEST(Churn, NothingGrows) {
  const ChurnCounts day = run_churn({.length = 24h});
  EXPECT_EQ(day.processes, 24u * 120u);
  EXPECT_EQ(day.unsettled_mj, 0);
  // One in 30 s that lives 165 s on average: 5.5 at a time, at most 10, and those of the last
  // 10 minutes: 20 more, and one on either edge.
  EXPECT_LE(day.tenants, 10u);
  EXPECT_LE(day.open_accounts, 32u);
  EXPECT_GE(day.closed, day.processes - 32);
  ASSERT_GE(day.in_use.size(), 23u);
  const auto morning = std::max_element(day.in_use.begin(), day.in_use.begin() + 6);
  const auto evening = std::max_element(day.in_use.end() - 6, day.in_use.end());
  // Five covariances of 71 states for 10 processes at a time are 200 kB, for 4 half of it: that
  // much comes and goes. 1440 processes came in between: a name kept of each would be more.
  EXPECT_LT(*evening, *morning + 1440 * 64);
}

}  // namespace
}  // namespace derate
