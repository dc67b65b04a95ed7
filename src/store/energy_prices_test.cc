#include "store/energy_prices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <ctime>

#include "base/when.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

class EnergyPricesTest : public testing::Test {
 protected:
  EnergyPricesTest() { set_zone("Europe/Berlin"); }
  ~EnergyPricesTest() override { set_zone("UTC"); }
  static void set_zone(const char* name) {
    ::setenv("TZ", name, 1);
    ::tzset();
  }
  static WallTime at(const char* text) { return *parse_when(text, {}); }
};

// Every hour of a local day as a file has it, hour h at the price h of its place in the file.
std::string day_file(WallTime begin) {
  std::string out = "time,price_per_kwh\n";
  int row = 0;
  for (WallTime hour = begin; hour < day_after(begin); hour += 1h)
    out += fmt::format("{},{}\n", when_text(hour), ++row);
  return out;
}

TEST_F(EnergyPricesTest, ReadsWhatIsToldBeforeTheRows) {
  const auto prices = parse_prices(
      "\xef\xbb\xbf# source: ENTSO-E, DE-LU day ahead\n# date: 2026-11-02\n# currency: EUR\n"
      "# made by hand\n\nco2_g_per_kwh, Time ,price_per_kwh\r\n400,2026-11-01T00:00,0.31\r\n"
      ",2026-11-01T01:00,-0.02\r\n");
  ASSERT_TRUE(prices.ok()) << prices.error().message;
  EXPECT_EQ(prices->source, "ENTSO-E, DE-LU day ahead");
  EXPECT_EQ(prices->date, "2026-11-02");
  EXPECT_EQ(prices->currency, "EUR");
  EXPECT_TRUE(prices->has_prices && prices->has_co2);
  EXPECT_EQ(price_of_hour(*prices, at("2026-11-01T00:00")), (EnergyPrice{0.31, 400}));
  EXPECT_EQ(price_of_hour(*prices, at("2026-11-01T01:00")), (EnergyPrice{-0.02, {}}));
  EXPECT_EQ(price_of_hour(*prices, at("2026-11-01T02:00")), EnergyPrice{});
}

// 23, 25 and 24 rows: each hour has the price of its own row.
TEST_F(EnergyPricesTest, DaysOf23And25HoursHaveAsManyPrices) {
  for (const auto& [day, count] :
       {std::pair{"2026-03-29", 23}, {"2026-10-25", 25}, {"2026-10-26", 24}}) {
    const WallTime begin = at(day);
    const auto prices = parse_prices(day_file(begin));
    ASSERT_TRUE(prices.ok()) << prices.error().message;
    ASSERT_EQ(prices->periods.size(), static_cast<std::size_t>(count)) << day;
    for (int hour = 0; hour < count; ++hour)
      EXPECT_EQ(price_of_hour(*prices, begin + hour * 1h).per_kwh, hour + 1.0) << day << hour;
    EXPECT_EQ(price_of_hour(*prices, begin + count * 1h), EnergyPrice{}) << day;
  }
}

TEST_F(EnergyPricesTest, TheHourThatNeverComesMayBeEmpty) {
  const auto prices = parse_prices(
      "time,price_per_kwh\n2026-03-29 01:00,1\n2026-03-29 02:00,\n2026-03-29 03:00,3\n");
  ASSERT_TRUE(prices.ok()) << prices.error().message;
  EXPECT_EQ(price_of_hour(*prices, at("2026-03-29T01:00Z")).per_kwh, 3.0);
  EXPECT_FALSE(
      parse_prices(
          "time,price_per_kwh\n2026-03-29 01:00,1\n2026-03-29 02:00,2\n2026-03-29 03:00,3\n")
          .ok());
}

// An hour of UTC has half of one price and half of the next there.
TEST_F(EnergyPricesTest, WhereHoursBeginAtHalfPastTheMeanIsMeant) {
  set_zone("Asia/Kolkata");
  const auto prices = parse_prices("time,price_per_kwh\n2026-11-01 00:00,1\n2026-11-01 01:00,2\n");
  ASSERT_TRUE(prices.ok()) << prices.error().message;
  EXPECT_EQ(price_of_hour(*prices, at("2026-10-31T19:00Z")).per_kwh, 1.5);
  // Of half of these nothing is known.
  EXPECT_FALSE(price_of_hour(*prices, at("2026-10-31T18:00Z")).per_kwh);
  EXPECT_FALSE(price_of_hour(*prices, at("2026-10-31T20:00Z")).per_kwh);
}

TEST_F(EnergyPricesTest, QuartersOfAnHourAndOffsetsAreRead) {
  const auto prices = parse_prices(
      "time,co2_g_per_kwh\n2026-11-01T00:00+01:00,100\n2026-11-01T00:15+01:00,200\n"
      "2026-10-31T23:30Z,300\n2026-10-31T23:45Z,400\n2026-11-01T03:00+01:00,7\n");
  ASSERT_TRUE(prices.ok()) << prices.error().message;
  EXPECT_EQ(price_of_hour(*prices, at("2026-10-31T23:00Z")).co2_g_per_kwh, 250.0);
  // 23:45's row is of an hour at most, and this hour begins with half of it.
  EXPECT_FALSE(price_of_hour(*prices, at("2026-11-01T00:00Z")).co2_g_per_kwh);
}

TEST_F(EnergyPricesTest, WhatIsNoFileOfPricesIsRefusedWithItsLine) {
  const std::pair<const char*, const char*> kBad[] = {
      {"", "there is no row"},
      {"# source: x\n", "there is no row"},
      {"time,price_per_kwh\n", "there is no row"},
      {"time,price\n2026-11-01,1\n", "line 1: 'time,price': wanted the columns"},
      {"time,price_per_kwh,time\n", "line 1: there are two columns 'time'"},
      {"time,price_per_kwh\n2026-11-01\n", "line 2: 1 cells, and the heading has 2"},
      {"time,price_per_kwh\n2026-11-01,1;5\n", "line 2: price_per_kwh '1;5': allowed is"},
      {"time,price_per_kwh\n2026-11-01,nan\n", "line 2: price_per_kwh 'nan': allowed is"},
      {"time,co2_g_per_kwh\n2026-11-01,-1\n", "line 2: co2_g_per_kwh '-1': allowed is"},
      {"time,price_per_kwh\nsoon,1\n", "line 2: time 'soon': allowed are"},
      {"time,price_per_kwh\n2026-11-01,1\n2026-11-01,1\n", "line 3: time '2026-11-01' is not"},
      {"time,price_per_kwh\n2026-11-02,1\n2026-11-01,1\n", "line 3: time '2026-11-01' is not"}};
  for (const auto& [text, wanted] : kBad) {
    const auto prices = parse_prices(text);
    ASSERT_FALSE(prices.ok()) << text;
    EXPECT_NE(prices.error().message.find(wanted), std::string::npos) << prices.error().message;
  }
}

// Any bytes: an error or periods that ascend and do not overlap.
RC_GTEST_PROP(EnergyPricesProperty, WhateverIsReadIsInOrder, ()) {
  const auto cell =
      rc::gen::element<std::string>("2026-11-01", "2026-11-01 02:00", "1", "", ",", "\n",
                                    "time,price_per_kwh\n", "#", ":", "-3", "2026-11-01T02:15Z");
  std::string text = "time,price_per_kwh\n";
  for (const std::string& part : *rc::gen::container<std::vector<std::string>>(cell)) text += part;
  const auto prices = parse_prices(text);
  if (!prices.ok()) return;
  for (std::size_t i = 1; i < prices->periods.size(); ++i) {
    const auto& before = prices->periods[i - 1];
    RC_ASSERT(before.begin + before.length <= prices->periods[i].begin);
  }
}

}  // namespace
}  // namespace derate
