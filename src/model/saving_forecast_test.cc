#include "model/saving_forecast.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

namespace derate {
namespace {

LikelySaving on_v100(std::optional<double> memory, double max_loss = 0.1) {
  return likely_saving(
      {.chip = "V100-SXM2", .memory_utilisation = memory, .max_loss = max_loss, .lowest_x = 0.9});
}

TEST(SavingForecast, IsNarrowerWhereMemoryIsBusyThanWhereNothingIsKnown) {
  const LikelySaving unknown = on_v100({}), busy = on_v100(0.85);
  EXPECT_LT(busy.high - busy.low, 0.7 * (unknown.high - unknown.low));
  EXPECT_GT(busy.low, unknown.low);
}

TEST(SavingForecast, OfAnotherChipIsWider) {
  SavingQuestion question{
      .chip = "V100-SXM2", .memory_utilisation = 0.85, .max_loss = 0.1, .lowest_x = 0.9};
  const LikelySaving own = likely_saving(question);
  question.foreign = true;
  const LikelySaving foreign = likely_saving(question);
  EXPECT_GT(foreign.high - foreign.low, own.high - own.low + 0.03);
}

RC_GTEST_PROP(SavingForecast, GrowsWithThePromise, ()) {
  const double memory = *rc::gen::inRange(0, 101) / 100.0;
  const double less = *rc::gen::inRange(1, 30) / 100.0, more = less + 0.05;
  const LikelySaving a = on_v100(memory, less), b = on_v100(memory, more);
  RC_ASSERT(a.low <= b.low + 1e-9);
  RC_ASSERT(a.high <= b.high + 1e-9);
  RC_ASSERT(0 <= a.low && a.low < a.high && a.high < 1);
  RC_ASSERT(0 <= a.loss_low && a.loss_low <= a.loss_high);
}

}  // namespace
}  // namespace derate
