#include "savings_view.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <sstream>

#include "base/json.h"
#include "base/when.h"
#include "terminal/text_width.h"
#include "test_text.h"

namespace derate::cli {
namespace {

constexpr WallTime kAfterAll = WallTime::max();

void set_savings_zone(const char* name) {
  ::setenv("TZ", name, 1);
  ::tzset();
}

// A GPU that uses 1 kWh an hour, and would have used 1.25 kWh.
SavingsAnswer steady_hours(std::int64_t from, int hours) {
  SavingsAnswer out{.by = "gpu", .method = "curves/1", .from_unix_seconds = from, .gpus = 1};
  out.to_unix_seconds = from + 3600 * hours;
  SavingsLineView line{.key = "GPU-0", .index = 0};
  for (int hour = 0; hour < hours; ++hour) {
    line.hour_unix_seconds.push_back(from + 3600 * hour);
    line.covered_seconds.push_back(3600);
    line.energy_joules.push_back(3.6e6);
    line.saved_of_joules.push_back(3.6e6);
    line.saved_at_highest_joules.push_back(4.5e6);
    line.saved_sd_joules.push_back(1e5);
  }
  out.covered_seconds = out.possible_seconds = 3600.0 * hours;
  out.lines.push_back(std::move(line));
  return out;
}

std::int64_t begin_of(const char* day) {
  return parse_when(day, {})->time_since_epoch() / std::chrono::seconds(1);
}

std::map<std::string, double> kwh_by_day(const SavingsAccount& account) {
  std::map<std::string, double> out;
  for (const SavingsBillLine& line : account.bill.lines)
    out[line.name] = static_cast<double>(line.sums.energy_mj) / 3.6e9;
  return out;
}

TEST(SavingsView, DaysAreThoseOfTheClockOnTheWall) {
  set_savings_zone("Europe/Berlin");
  auto days = kwh_by_day(
      make_savings_account(steady_hours(begin_of("2026-10-24"), 24 + 25 + 24), "day", {}));
  EXPECT_EQ(days, (std::map<std::string, double>{
                      {"2026-10-24", 24}, {"2026-10-25", 25}, {"2026-10-26", 24}}));
  days = kwh_by_day(make_savings_account(steady_hours(begin_of("2026-03-29"), 23 + 1), "day", {}));
  EXPECT_EQ(days, (std::map<std::string, double>{{"2026-03-29", 23}, {"2026-03-30", 1}}));
  // Hours of UTC begin at half past there: each belongs to the day in which it begins.
  set_savings_zone("Asia/Kolkata");
  days =
      kwh_by_day(make_savings_account(steady_hours(begin_of("2026-10-31T18:30"), 24), "day", {}));
  EXPECT_EQ(days, (std::map<std::string, double>{{"2026-10-31", 6}, {"2026-11-01", 18}}));
  set_savings_zone("UTC");
}

TEST(SavingsView, TellsMoneyCarbonIntervalAndWhereFiguresComeFrom) {
  PriceRule prices{.otherwise = {.co2_g_per_kwh = 350}};
  prices.by_hour = *parse_prices(
      "# source: EPEX day ahead\n# date: 2026-11-02\ntime,price_per_kwh\n"
      "2026-11-01T00:00,0.20\n2026-11-01T01:00,0.40\n2026-11-01T02:00,0.60\n");
  SavingsAccount account =
      make_savings_account(steady_hours(begin_of("2026-11-01"), 4), "gpu", prices);
  account.currency = "EUR";
  account.price_file = "prices.csv";
  account.answer.first_unix_seconds = account.answer.from_unix_seconds + 7200;
  account.answer.possible_seconds *= 2;
  const std::string text = savings_text(account, 200, kAfterAll);
  for (const char* part :
       {"2026-11-01 00:00 to 2026-11-01 04:00; kept since 2026-11-01 02:00", "GPU 0", "4.00",
        "1.00", "0.8172 to 1.18", "20.0 %", "1.20*", "0.3000*", "1.40", "0.3500",
        "Known for 50.0 % of the time of 1 GPU; 100 % of the energy was governed with "
        "an estimate.\nEnergy is of GPU boards only",
        "Hour by hour from prices.csv: source EPEX day ahead, as of 2026-11-02.",
        "At all hours 350 g of CO2 a kWh.",
        "* 1.00 kWh are without a figure, which the file does not have: 2026-11-01 03:00 to "
        "2026-11-01 04:00."})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  const Json json = savings_json(account);
  EXPECT_EQ(json["lines"][0]["index"], 0);
  EXPECT_DOUBLE_EQ(json["total"]["cost"]["used"].get<double>(), 1.2);
  EXPECT_DOUBLE_EQ(json["total"]["cost"]["unpriced_kwh"].get<double>(), 1);
  EXPECT_EQ(json["prices"]["source"], "EPEX day ahead");
  EXPECT_TRUE(json["prices"]["price_per_kwh"].is_null());
  EXPECT_EQ(json["prices"]["unpriced"].size(), 1u);
}

TEST(SavingsView, TheTimeOfTheTableEndsNowWhereItsLastHourIsNotOver) {
  const SavingsAccount account =
      make_savings_account(steady_hours(begin_of("2026-11-01"), 4), "gpu", {});
  const auto heading = [&](const char* now) {
    const std::string text = savings_text(account, 200, *parse_when(now, {}));
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(heading("2026-11-01T03:13"), "2026-11-01 00:00 to 2026-11-01 03:13");
  EXPECT_EQ(heading("2026-11-01T04:13"), "2026-11-01 00:00 to 2026-11-01 04:00");
  EXPECT_EQ(heading("2026-10-31"), "2026-11-01 00:00 to 2026-11-01 00:00");  // of another clock
}

TEST(SavingsView, WhatIsNotKnownIsSaid) {
  SavingsAnswer answer = steady_hours(begin_of("2026-11-01"), 2);
  for (auto* column : {&answer.lines[0].saved_of_joules, &answer.lines[0].saved_at_highest_joules,
                       &answer.lines[0].saved_sd_joules})
    std::fill(column->begin(), column->end(), 0);
  const std::string text = savings_text(make_savings_account(answer, "day", {}), 120, kAfterAll);
  EXPECT_TRUE(has(text, "what was saved is not known")) << text;
  EXPECT_FALSE(has(text, "CO2"));
  EXPECT_TRUE(
      savings_json(make_savings_account(answer, "day", {}))["total"]["saved_kwh"].is_null());
  answer.lines.clear();
  EXPECT_TRUE(has(savings_text(make_savings_account(answer, "day", {}), 120, kAfterAll),
                  "nothing is kept of that time"));
}

// Lines and total agree, and nothing is wider than it may be.
RC_GTEST_PROP(SavingsViewProperty, LinesAddUpToTheTotal, ()) {
  SavingsAnswer answer = steady_hours(begin_of("2026-11-01"), *rc::gen::inRange(1, 60));
  for (double& joules : answer.lines[0].energy_joules)
    joules = static_cast<double>(*rc::gen::inRange(0, 9'000'000)) / 1000;
  answer.lines.push_back(answer.lines[0]);
  answer.lines[1].key = "GPU-1";
  answer.lines[1].index.reset();
  PriceRule prices{.otherwise = {.per_kwh = 0.3, .co2_g_per_kwh = 400}};
  SavingsAccount account =
      make_savings_account(answer, *rc::gen::element<std::string>("day", "gpu"), prices);
  account.currency = "EUR";
  std::int64_t sum = 0;
  for (const SavingsBillLine& line : account.bill.lines) sum += line.sums.energy_mj;
  RC_ASSERT(sum == account.bill.total.energy_mj);
  const auto width = *rc::gen::inRange<std::size_t>(20, 160);
  std::istringstream in(savings_text(account, width, kAfterAll));
  std::string line;
  std::getline(in, line);
  for (std::size_t i = 0; i < account.bill.lines.size() + 2 && std::getline(in, line); ++i)
    RC_ASSERT(display_width(line) <= width);
  std::istringstream csv(savings_csv(account));
  std::size_t commas = 0;
  while (std::getline(csv, line)) {
    const auto here = static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
    if (commas == 0) commas = here;
    RC_ASSERT(here == commas);
  }
}

}  // namespace
}  // namespace derate::cli
