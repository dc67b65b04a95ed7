#include "bill_view.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sstream>

#include "base/json.h"
#include "base/text.h"
#include "test_text.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

// 3 kWh, of which alice has two thirds and nobody the rest.
BillAccount two_lines() {
  constexpr std::int64_t kKwh = 3'600'000'000;  // mJ
  BillAccount out;
  out.from = WallTime(1h);
  out.to = WallTime(3h);
  out.first = out.from;
  out.last = out.to;
  out.bill.lines = {{"alice",
                     {.base_mj = kKwh / 2,
                      .context_mj = kKwh / 2,
                      .dynamic_mj = kKwh,
                      .sigma_mj = 1000,
                      .time_ms = 7'200'000}}};
  out.bill.boards = {.board_mj = 3 * kKwh, .unallocated_mj = kKwh, .time_ms = 7'200'000};
  return out;
}

TEST(BillText, SaysWhoUsedWhatAndWhatNobodyDid) {
  const std::string text = bill_text(two_lines());
  for (const char* part : {"alice", "7.20 MJ", "±1.65 J", "2.000000", "66.7 %", "unallocated",
                           "33.3 %", "total", "100.0 %"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "CO2"));
  EXPECT_FALSE(has(text, "kept:"));
}

TEST(BillText, PricesAreColumnsWhereThereAreSome) {
  BillAccount account = two_lines();
  account.prices = {.per_kwh = 0.3, .co2_g_per_kwh = 600, .currency = "SEK"};
  std::string text = bill_text(account);
  for (const char* part : {"SEK", "0.6000", "0.3000", "0.9000", "CO2", "1.20 kg", "600.00 g"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  account.prices.per_kwh = 5;
  EXPECT_TRUE(has(bill_text(account), "10.00"));
}

TEST(BillText, WhatIsMissingIsSaid) {
  BillAccount account = two_lines();
  account.first = account.from + 30min;
  account.bill.boards.lost_ms = 90'000;
  account.bill.boards.by_power_mj = 5'000;
  for (int i = 0; i < 7; ++i)
    account.losses.push_back({WallTime(1h + i * 1min), WallTime(1h + (i + 1) * 1min), 1000});
  std::string text = bill_text(account);
  for (const char* part : {"; kept: ", "the energy of 1:30 is not known", " and 2 more",
                           "5.00 J are power readings times time"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  account.first.reset();
  account.last.reset();
  text = bill_text(account);
  EXPECT_TRUE(has(text, "nothing is kept of that time"));
  EXPECT_FALSE(has(text, "alice"));
}

TEST(BillText, TenantsWithoutALabelAreNamedByWhatTheyLack) {
  BillAccount account = two_lines();
  account.by = BillBy::pod;
  account.bill.lines[0].name.clear();
  EXPECT_TRUE(has(bill_text(account), "(no pod)"));
  EXPECT_EQ(bill_json(account)["lines"][0]["name"], "");
}

// Nothing but priors: how sure it is is not known, and not that it is exact.
TEST(BillText, ADeviationThatIsNotKnownIsNone) {
  BillAccount account = two_lines();
  UsageSums& sums = account.bill.lines[0].sums;
  sums.sigma_mj = 0;
  sums.unsure_mj = sums.dynamic_mj;
  EXPECT_FALSE(has(bill_text(account), "±1"));
  EXPECT_TRUE(bill_json(account)["lines"][0]["energy_sigma_joules"].is_null());
  sums.unsure_mj = 500'000;
  EXPECT_EQ(bill_json(account)["lines"][0]["energy_sigma_joules"], 500.0);
}

TEST(BillJson, HasCostsOnlyWithPrices) {
  BillAccount account = two_lines();
  Json json = bill_json(account);
  EXPECT_FALSE(json.contains("currency") || json["total"].contains("cost"));
  EXPECT_EQ(json["from_unix_seconds"], 3600.0);
  EXPECT_EQ(json["lines"][0]["base_joules"], 1.8e6);
  account.prices = {.per_kwh = 0.3, .co2_g_per_kwh = 600, .currency = "SEK"};
  account.first.reset();
  json = bill_json(account);
  EXPECT_EQ(json["currency"], "SEK");
  EXPECT_DOUBLE_EQ(json["total"]["cost"].get<double>(), 0.9);
  EXPECT_DOUBLE_EQ(json["lines"][0]["co2_grams"].get<double>(), 1200);
  EXPECT_TRUE(json["first_unix_seconds"].is_null());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(BillCsv, HasTheColumnsOfItsHeading) {
  BillAccount account = two_lines();
  account.bill.lines[0].name = "team-a/\"web\", 0";
  account.prices.per_kwh = 0.3;
  const auto lines = lines_of(bill_csv(account));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1],
            "user,\"team-a/\"\"web\"\", 0\",7200000.000,1800000.000,1800000.000,3600000.000,1.000,"
            "7200.000,2.000000000,0.600000,");
  EXPECT_EQ(lines[2], "unallocated,,3600000.000,,,,,,1.000000000,0.300000,");
  EXPECT_EQ(lines[3], "total,,10800000.000,,,,,7200.000,3.000000000,0.900000,");
}

// Whatever the energies are, the rows of a table add up to its total, to the millijoule.
RC_GTEST_PROP(BillCsvProperty, ItsRowsAddUp, ()) {
  BillAccount account = two_lines();
  account.bill.lines.clear();
  account.bill.boards = {.unallocated_mj = *rc::gen::inRange<std::int64_t>(0, 1LL << 50)};
  std::int64_t& board = account.bill.boards.board_mj = account.bill.boards.unallocated_mj;
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
    const UsageSums sums{.dynamic_mj = *rc::gen::inRange<std::int64_t>(0, 1LL << 50)};
    account.bill.lines.push_back({std::string(1, static_cast<char>('a' + i)), sums});
    board += sums.total_mj();
  }
  const auto lines = lines_of(bill_csv(account));
  std::int64_t sum = 0, total = -1;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::istringstream in(lines[i]);
    std::string kind, name, joules;
    std::getline(in, kind, ',');
    std::getline(in, name, ',');
    std::getline(in, joules, ',');
    const std::int64_t mj = parse_integer(joules.erase(joules.find('.'), 1)).value();
    (kind == "total" ? total = mj : sum += mj);
  }
  RC_ASSERT(sum == total);
}

}  // namespace
}  // namespace derate::cli
