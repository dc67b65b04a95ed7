#include "store/history/savings_bill.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>

#include "base/when.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kKwh = 3'600'000'000;  // mJ

SavingsHour some_hour() {
  const auto mj = rc::gen::inRange<std::int64_t>(0, 10 * kKwh);
  return {.hour = WallTime(1h * *rc::gen::inRange(0, 100)),
          .key = *rc::gen::element<std::string>("", "a", "b"),
          .covered_ms = *rc::gen::inRange(0, 3'600'000),
          .energy_mj = *mj,
          .saved_of_mj = *mj,
          .saved_at_highest_mj = *mj,
          .saved_sd_mj = *mj / 10};
}

// Prices of some of those hours.
EnergyPrices some_prices() {
  EnergyPrices out{.has_prices = true, .has_co2 = *rc::gen::arbitrary<bool>()};
  for (int hour = 0; hour < 100; ++hour)
    if (*rc::gen::inRange(0, 4) > 0)
      out.periods.push_back(
          {WallTime(1h * hour),
           1h,
           {*rc::gen::inRange(-100, 500) / 1000.0, *rc::gen::inRange(0, 900) / 1.0}});
  return out;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(a) + std::abs(b)); }

RC_GTEST_PROP(SavingsBillProperty, SumsByHourTimesPricesAreTheTotal, ()) {
  const auto hours = *rc::gen::container<std::vector<SavingsHour>>(rc::gen::exec(some_hour));
  PriceRule prices{some_prices(), {.per_kwh = 77, .co2_g_per_kwh = 350}};
  const SavingsBill bill =
      make_savings_bill(hours, prices, [](const SavingsHour& hour) { return hour.key; });
  std::map<std::int64_t, double> price_of;
  for (const auto& period : prices.by_hour.periods)
    price_of[period.begin.time_since_epoch() / 1h] = *period.price.per_kwh;
  double used = 0, saved = 0, sd = 0;
  std::int64_t all_mj = 0, unpriced_mj = 0;
  for (const SavingsHour& hour : hours) {
    all_mj += hour.energy_mj;
    const auto price = price_of.find(hour.hour.time_since_epoch() / 1h);
    if (price == price_of.end()) {
      unpriced_mj += hour.energy_mj;
      continue;
    }
    const auto money = [&](std::int64_t mj) {
      return static_cast<double>(mj) / kKwh * price->second;
    };
    used += money(hour.energy_mj);
    saved += money(hour.saved_at_highest_mj) - money(hour.saved_of_mj);
    sd += std::abs(money(hour.saved_sd_mj));
  }
  RC_ASSERT(bill.total.energy_mj == all_mj);
  RC_ASSERT(bill.total.cost.unpriced_mj == unpriced_mj);
  RC_ASSERT(near(bill.total.cost.used, used));
  RC_ASSERT(near(bill.total.cost.saved, saved));
  RC_ASSERT(near(bill.total.cost.saved_sd, sd));
  // A file without carbon leaves it to the single figure, which all hours have.
  if (!prices.by_hour.has_co2) {
    RC_ASSERT(bill.total.co2.unpriced_mj == 0);
    RC_ASSERT(near(bill.total.co2.used, static_cast<double>(all_mj) / kKwh * 350));
  }
  SavingsSums lines;
  for (const SavingsBillLine& line : bill.lines) lines.add(line.sums);
  RC_ASSERT(lines.energy_mj == bill.total.energy_mj && lines.saving == bill.total.saving);
  RC_ASSERT(near(lines.cost.used, bill.total.cost.used));
}

TEST(SavingsBill, HoursWithoutAPriceAreToldAndNeverGuessed) {
  PriceRule prices;
  prices.by_hour = {.periods = {{WallTime(2h), 1h, {0.5, {}}}}, .has_prices = true};
  prices.otherwise.per_kwh = 9;  // not for the hours that the file leaves out
  std::vector<SavingsHour> hours;
  for (int hour = 0; hour < 6; ++hour)
    hours.push_back({.hour = WallTime(1h * hour), .key = "g", .energy_mj = kKwh});
  hours[4].energy_mj = 0;  // nothing to price
  const SavingsBill bill =
      make_savings_bill(hours, prices, [](const SavingsHour& hour) { return hour.key; });
  EXPECT_EQ(bill.total.cost.used, 0.5);
  EXPECT_EQ(bill.total.cost.unpriced_mj, 4 * kKwh);
  const std::vector<std::pair<WallTime, WallTime>> unpriced = {
      {WallTime(0h), WallTime(2h)}, {WallTime(3h), WallTime(4h)}, {WallTime(5h), WallTime(6h)}};
  EXPECT_EQ(bill.unpriced, unpriced);
}

TEST(SavingsBill, WhatIsNobodysComesLast) {
  const SavingsBill bill = make_savings_bill({{.key = ""}, {.key = "b"}, {.key = "a"}}, {},
                                             [](const SavingsHour& hour) { return hour.key; });
  ASSERT_EQ(bill.lines.size(), 3u);
  EXPECT_EQ(bill.lines[0].name, "a");
  EXPECT_EQ(bill.lines[2].name, "");
}

}  // namespace
}  // namespace derate
