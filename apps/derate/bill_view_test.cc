#include "bill_view.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
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

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(BillText, SaysWhoUsedWhatAndWhatNobodyDid) {
  const std::string text = bill_text(two_lines());
  for (const char* part :
       {"alice", "2.000000", "±0.0005 Wh", "66.7 %", "unallocated", "33.3 %", "total", "100.0 %"})
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
  for (const char* part : {"; kept: ", "the energy of a time of 1 min 30 s is not known",
                           " and 2 more", "0.0014 Wh are power readings times time"})
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

TEST(BillText, TellsWhatIsAssumption) {
  BillAccount account = two_lines();
  UsageSums& sums = account.bill.lines[0].sums;
  sums.prior_mj = sums.total_mj() / 100 - 1000;
  EXPECT_FALSE(has(bill_text(account), "assum")) << "less than a hundredth";
  sums.prior_mj = sums.total_mj() / 4;
  account.bill.lines.push_back({"bob", {.dynamic_mj = 1'000'000, .unsure_mj = 1'000'000}});
  account.bill.lines.push_back({"eve", {.dynamic_mj = 1'000'000, .sigma_mj = 1}});
  const auto lines = lines_of(bill_text(account));
  ASSERT_EQ(lines.size(), 9u);
  const std::pair<std::size_t, const char*> ends[] = {
      {1, "share  assumed"}, {2, "66.7 %     25 %"}, {3, " %        -"},
      {4, " %      0 %"},    {5, "33.3 %        -"}, {6, "100.0 %     17 %"}};
  for (const auto& [at, end] : ends) EXPECT_TRUE(lines[at].ends_with(end)) << lines[at];
  EXPECT_EQ(lines[8],
            "500 Wh were split by assumption: those tenants had not been measured for long");
}

TEST(BillJson, TellsWhatIsAssumptionOrNull) {
  BillAccount account = two_lines();
  account.bill.lines[0].sums.prior_mj = 5'250;
  Json json = bill_json(account);
  EXPECT_EQ(json["lines"][0]["prior_joules"], 5.25);
  EXPECT_EQ(json["total"]["prior_joules"], 5.25);
  EXPECT_TRUE(has(bill_csv(account), ",1.000,5.250,7200.000,"));
  // The method never said.
  UsageSums& sums = account.bill.lines[0].sums;
  sums = {.dynamic_mj = sums.dynamic_mj, .unsure_mj = sums.dynamic_mj};
  json = bill_json(account);
  EXPECT_TRUE(json["lines"][0]["prior_joules"].is_null());
  EXPECT_TRUE(json["total"]["prior_joules"].is_null());
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

// Alice saved a tenth of 2 kWh, nobody as much again of 1 kWh.
BillAccount with_savings() {
  constexpr std::int64_t kKwh = 3'600'000'000;  // mJ
  BillAccount out = two_lines();
  out.bill.lines[0].sums.savings["curves/1"] = {kKwh * 9 / 5, kKwh * 2, kKwh / 100};
  out.bill.boards.unallocated_savings["curves/1"] = {kKwh * 4 / 5, kKwh, kKwh / 100};
  out.bill.savings["curves/1"] = {kKwh * 13 / 5, kKwh * 3, kKwh / 50};
  return out;
}

TEST(BillText, TellsWhatWasSavedWhereThatIsKnown) {
  EXPECT_FALSE(has(bill_text(two_lines()), "aved"));
  BillAccount account = with_savings();
  std::string text = bill_text(account);
  for (const char* part :
       {"governed\n", "200 Wh, about 9.1 %      90 %\n", "200 Wh, about 16.7 %      80 %\n",
        "400 Wh, about 11.8 %      87 %\n",
        "\nSaved about 12 % (400 Wh of 3.40 kWh, 90 % sure between 10.9 and 12.6 %); "
        "87 % of the energy was governed with an estimate, the rest saved nothing.\n"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  account.prices = {.per_kwh = 2, .co2_g_per_kwh = 600, .currency = "SEK"};
  EXPECT_TRUE(has(bill_text(account), "12.6 %), 0.8000 SEK, 240.00 g of CO2; 87 %"));
  account.bill.lines[0].sums.savings.clear();
  EXPECT_TRUE(has(bill_text(account), "-         -\n")) << bill_text(account);
}

TEST(BillText, FiguresOfTwoMethodsAreNotAddedUp) {
  BillAccount account = with_savings();
  account.bill.savings["curves/2"] = account.bill.savings["curves/1"];
  const std::string text = bill_text(account);
  EXPECT_TRUE(has(text, "200 Wh, about 9.1 %"));
  EXPECT_FALSE(has(text, "400 Wh,"));
  EXPECT_TRUE(has(text, "estimated by curves/1 and curves/2, which are not added up"));
  EXPECT_TRUE(bill_json(account)["total"]["saving"].is_null());
}

TEST(BillJson, HasWhatWasSavedOrNull) {
  BillAccount account = with_savings();
  account.prices = {.per_kwh = 2, .currency = "SEK"};
  account.bill.boards.unallocated_savings.clear();
  const Json json = bill_json(account);
  const Json& saving = json["lines"][0]["saving"];
  EXPECT_EQ(saving["method"], "curves/1");
  EXPECT_EQ(saving["saved_joules"], 720'000.0);
  EXPECT_DOUBLE_EQ(saving["energy_saving_ratio"].get<double>(), 0.2 / 2.2);
  EXPECT_DOUBLE_EQ(saving["governed_saving_ratio"].get<double>(), 0.1);
  EXPECT_DOUBLE_EQ(saving["saved_cost"].get<double>(), 0.4);
  EXPECT_FALSE(saving.contains("saved_co2_grams"));
  EXPECT_TRUE(json["unallocated"]["saving"].is_null());
  EXPECT_EQ(json["total"]["saving"]["energy_at_highest_joules"], 10'800'000.0);
}

TEST(BillCsv, HasTheColumnsOfItsHeading) {
  BillAccount account = two_lines();
  account.bill.lines[0].name = "team-a/\"web\", 0";
  account.prices.per_kwh = 0.3;
  const auto lines = lines_of(bill_csv(account));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1],
            "user,\"team-a/\"\"web\"\", 0\",7200000.000,1800000.000,1800000.000,3600000.000,1.000,"
            "0.000,7200.000,2.000000000,0.600000,,,,,,,,");
  EXPECT_EQ(lines[2], "unallocated,,3600000.000,,,,,,,1.000000000,0.300000,,,,,,,,");
  EXPECT_EQ(lines[3], "total,,10800000.000,,,,,0.000,7200.000,3.000000000,0.900000,,,,,,,,");
}

TEST(BillCsv, HasWhatWasSaved) {
  BillAccount account = with_savings();
  account.prices.per_kwh = 2;
  const auto lines = lines_of(bill_csv(account));
  const std::string saved = ",curves/1,720000.000,0.090909,0.084060,0.097656,0.400000,";
  EXPECT_TRUE(lines[1].ends_with(saved)) << lines[1];
  const auto columns = [](const std::string& line) {
    return std::count(line.begin(), line.end(), ',');
  };
  for (const std::string& line : lines) EXPECT_EQ(columns(line), columns(lines[0])) << line;
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
