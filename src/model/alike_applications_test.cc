#include "model/alike_applications.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

constexpr double kDeltas[] = {0.02, 0.05, 0.1, 0.2, 0.3};

Envelope v100() {
  std::vector<Megahertz> clocks;
  for (double mhz = 952.5; mhz <= 1530; mhz += 7.5) clocks.emplace_back(mhz);
  return *Envelope::create(clocks, clocks.front(), clocks.back());
}

// Whatever was seen: a mean lies in its interval, and who may lose more saves no less.
RC_GTEST_PROP(AlikeApplications, TellSoundlyOfAnyWork, ()) {
  const auto share = [](int least, int most) { return *rc::gen::inRange(least, most) / 100.0; };
  SeenWork work{.clock = Megahertz(*rc::gen::inRange(100, 1600)),
                .gpu_utilisation = Fraction(share(0, 101)),
                .memory_utilisation = Fraction(share(0, 101)),
                .capped = *rc::gen::arbitrary<bool>(),
                .held = {}};
  if (*rc::gen::arbitrary<bool>()) work.memory_utilisation.reset();
  if (*rc::gen::arbitrary<bool>()) work.held = {Fraction(share(0, 120)), Fraction(share(0, 150))};
  const std::string chip = *rc::gen::element<std::string>("V100-SXM2", "A100-SXM4", "H200", "");
  double before = -1;
  for (const Forecast& each : forecast_by_alike(chip, v100(), work, kDeltas)) {
    for (const ShareEstimate& estimate : {each.saving, each.loss}) {
      RC_ASSERT(std::isfinite(estimate.low) && std::isfinite(estimate.high));
      RC_ASSERT(estimate.low <= estimate.mean && estimate.mean <= estimate.high);
    }
    RC_ASSERT(each.loss.mean <= each.delta);
    RC_ASSERT(each.saving.mean >= before - 1e-9);
    before = each.saving.mean;
  }
}

// What was held at one clock says more than memory utilisation: the interval is narrower.
TEST(AlikeApplications, KnowMoreOfWorkThatWasHeld) {
  const SeenWork seen{.clock = Megahertz(1530), .memory_utilisation = Fraction(0.6), .held = {}};
  SeenWork held = seen;
  held.clock = Megahertz(1200);
  held.held = {Fraction(0.93), Fraction(0.75)};
  const auto wide = forecast_by_alike("V100-SXM2", v100(), seen, kDeltas),
             narrow = forecast_by_alike("V100-SXM2", v100(), held, kDeltas);
  EXPECT_LT(narrow[3].loss.high - narrow[3].loss.low, wide[3].loss.high - wide[3].loss.low);
  EXPECT_NEAR(narrow[2].loss.mean, 0.07, 0.015);
  EXPECT_NEAR(narrow[2].saving.mean, 0.25, 0.04);
}

TEST(AlikeApplications, KnowLessOfAChipWithoutMeasuredOnes) {
  const SeenWork seen{.clock = Megahertz(1530), .memory_utilisation = Fraction(0.6), .held = {}};
  const auto own = forecast_by_alike("V100-SXM2", v100(), seen, kDeltas),
             other = forecast_by_alike("H200", v100(), seen, kDeltas);
  EXPECT_GT(other[2].saving.high - other[2].saving.low, own[2].saving.high - own[2].saving.low);
}

// At its power limit work is compared with the clock that it has there.
TEST(AlikeApplications, CompareWithThePowerLimitsClock) {
  const SeenWork free{.clock = Megahertz(1530), .memory_utilisation = Fraction(0.3), .held = {}};
  SeenWork capped = free;
  capped.clock = Megahertz(1200);
  capped.capped = true;
  EXPECT_LT(forecast_by_alike("V100-SXM2", v100(), capped, kDeltas)[4].saving.mean,
            forecast_by_alike("V100-SXM2", v100(), free, kDeltas)[4].saving.mean);
}

}  // namespace
}  // namespace derate
