#include "base/energy_text.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

TEST(EnergyText, HasAsManyPlacesAsTellSomething) {
  EXPECT_EQ(kwh_text(0), "0 Wh");
  EXPECT_EQ(kwh_text(130), "0.0361 Wh");
  EXPECT_EQ(kwh_text(870), "0.242 Wh");
  EXPECT_EQ(kwh_text(3600), "1.00 Wh");
  EXPECT_EQ(kwh_text(3.6e6), "1.00 kWh");
  EXPECT_EQ(kwh_text(3.6e6 * 0.9996), "1.00 kWh");
  EXPECT_EQ(kwh_text(3.6e6 * 247.2), "247 kWh");
  EXPECT_EQ(kwh_text(3.6e9 * 2), "2.00 MWh");
  EXPECT_EQ(kwh_text(-7200), "-2.00 Wh");
  EXPECT_EQ(kwh_text(-0.001), "0.0000 Wh");
}

}  // namespace
}  // namespace derate
