#include "attrib/samples/paced_counter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>

namespace derate {
namespace {

// Ticks, less what they are ahead by, are the counter, whatever power says. No tick is negative.
RC_GTEST_PROP(PacedCounter, TicksAddUpToTheCounter, ()) {
  PacedCounter paced;
  std::int64_t given = 0, counted = 0, unread = 0;
  const int ticks = *rc::gen::inRange(1, 200);
  for (int i = 0; i < ticks; ++i) {
    const auto truth = *rc::gen::inRange<std::int64_t>(0, 700'000);
    const double power = *rc::gen::inRange(0, 1'000'000) / 1.3;
    unread += truth;
    const bool reads = *rc::gen::inRange(0, 4) == 0;
    if (reads) counted += unread;
    const std::int64_t tick = reads ? paced.at_reading(unread, power) : paced.between(power);
    if (reads) unread = 0;
    RC_ASSERT(tick >= 0);
    given += tick;
    RC_ASSERT(std::abs(given - paced.ahead_mj() - counted) <= 1);
  }
}

// Power that is 3 % off is corrected: ticks are as the counter says in the mean, and near each
// other.
TEST(PacedCounter, APowerThatIsOffIsCorrectedInSmallParts) {
  PacedCounter paced;
  constexpr double kPowerMj = 485'000;
  constexpr std::int64_t kTrueMj = 500'000;
  std::int64_t sum = 0;
  for (int i = 1; i <= 100; ++i) {
    const std::int64_t tick =
        i % 5 == 0 ? paced.at_reading(5 * kTrueMj, kPowerMj) : paced.between(kPowerMj);
    if (i <= 10) continue;
    sum += tick;
    EXPECT_NEAR(static_cast<double>(tick), kTrueMj, 0.06 * kTrueMj);
  }
  EXPECT_NEAR(static_cast<double>(sum) / 90, kTrueMj, 0.005 * kTrueMj);
}

}  // namespace
}  // namespace derate
