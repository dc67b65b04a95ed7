#include "govern/saving_json.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

Saving of_130_joules() {
  return {.energy = 740_J,
          .energy_at_highest = 870_J,
          .energy_sd = 15_J,
          .time = 100s,
          .time_at_highest = 93s,
          .time_sd = 1500ms};
}

TEST(SavingJson, SaysThatItIsAnEstimateAndOfWhichMethod) {
  const Json json = saving_json(of_130_joules());
  EXPECT_EQ(json["method"], kSavingMethod);
  EXPECT_EQ(json["estimated"], true);
  EXPECT_NEAR(json["energy_saving_ratio"].get<double>(), 0.1494, 1e-4);
  EXPECT_LT(json["energy_saving_low_ratio"], json["energy_saving_ratio"]);
  EXPECT_NEAR(json["performance_ratio"].get<double>(), 0.93, 1e-12);
  EXPECT_TRUE(saving_json({}).is_null());
}

TEST(SavingText, HasTheFigureAndItsInterval) {
  EXPECT_EQ(saving_text(of_130_joules()),
            "about 15 % (0.0361 Wh of 0.242 Wh, 90 % sure between 12 and 17 %)");
  EXPECT_EQ(speed_text(of_130_joules()), "93 % of full (between 91 and 95)");
  EXPECT_EQ(saving_text({}), "");
}

TEST(SavingText, LargeFiguresHaveLargeUnits) {
  Saving month = of_130_joules();
  for (int i = 0; i < 24; ++i) month += Saving(month);  // 16 million times
  EXPECT_EQ(saving_text(month), "about 15 % (606 kWh of 4.05 MWh, 90 % sure between 12 and 17 %)");
}

// The curves were wrong about it, or the clock was too low.
TEST(SavingText, WhatWasLostIsNegative) {
  EXPECT_EQ(saving_text({.energy = 22'000_J, .energy_at_highest = 2000_J, .energy_sd = 1_J}),
            "about -1000 % (-5.56 Wh of 0.556 Wh, 90 % sure between -1000.9 and -999.1 %)");
}

TEST(SavingJson, OfEnergiesAloneHasNoTimes) {
  Saving saving = of_130_joules();
  const Json json = energy_saving_json(saving, "other/2");
  EXPECT_EQ(json["method"], "other/2");
  EXPECT_EQ(json["energy_saving_ratio"], saving_json(saving)["energy_saving_ratio"]);
  EXPECT_FALSE(json.contains("time_seconds") || json.contains("performance_ratio"));
  EXPECT_TRUE(energy_saving_json({}, "other/2").is_null());
}

}  // namespace
}  // namespace derate
