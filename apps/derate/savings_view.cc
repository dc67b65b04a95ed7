#include "savings_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "api/saved_view.h"
#include "attribute_view.h"
#include "base/json.h"
#include "base/printing.h"
#include "base/text.h"
#include "base/when.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

double kwh_of(Joules energy) { return energy.value() / 3.6e6; }
double kwh_of(std::int64_t mj) { return static_cast<double>(mj) / 3.6e9; }

std::int64_t millijoules(double joules) { return std::llround(joules * 1000); }

WallTime wall_of(std::int64_t unix_seconds) { return WallTime(std::chrono::seconds(unix_seconds)); }

std::vector<SavingsHour> hours_of(const SavingsAnswer& answer) {
  std::vector<SavingsHour> out;
  for (const SavingsLineView& line : answer.lines)
    for (std::size_t i = 0; i < line.hour_unix_seconds.size(); ++i)
      out.push_back({.hour = wall_of(line.hour_unix_seconds[i]),
                     .key = line.key,
                     .covered_ms = millijoules(line.covered_seconds[i]),
                     .energy_mj = millijoules(line.energy_joules[i]),
                     .saved_of_mj = millijoules(line.saved_of_joules[i]),
                     .saved_at_highest_mj = millijoules(line.saved_at_highest_joules[i]),
                     .saved_sd_mj = millijoules(line.saved_sd_joules[i])});
  return out;
}

// Of GPUs by index: "GPU 0"; one that is gone by its UUID.
std::map<std::string, std::string> gpu_names(const SavingsAnswer& answer) {
  std::map<std::string, std::string> out;
  for (const SavingsLineView& line : answer.lines)
    out[line.key] = line.index ? "GPU " + gpu_cell(*line.index, line.key) : line.key;
  return out;
}

// Figures with as many places as tell something.
std::string kwh_cell(double kwh) {
  return fixed_text(kwh, std::abs(kwh) >= 100 ? 1 : std::abs(kwh) >= 1 ? 2 : 4);
}
std::string money_cell(double money) {
  return fixed_text(money, money != 0 && std::abs(money) < 1 ? 4 : 2);
}
std::string grams_cell(double grams) {
  return fixed_text(grams / 1000, std::abs(grams) >= 100'000 ? 1 : std::abs(grams) >= 1000 ? 2 : 4);
}

// A figure of which a part has no price is marked; without any there is none.
std::string priced_cell(const PricedSums& sums, double value, std::string (*text)(double)) {
  if (!sums.any) return "-";
  return text(value) + (sums.unpriced_mj != 0 ? "*" : "");
}

std::string name_cell(const SavingsAccount& account, const std::string& name) {
  if (account.by == "gpu") {
    const auto names = gpu_names(account.answer);
    if (const auto at = names.find(name); at != names.end()) return at->second;
  }
  if (!name.empty()) return cut(name, 48);
  return account.by == "policy" ? "(observed)" : fmt::format("(no {})", account.by);
}

Joules used_of(const SavingsSums& sums) {
  return Joules(static_cast<double>(sums.energy_mj) / 1000);
}

std::vector<std::string> cells_of(const SavingsAccount& account, const std::string& name,
                                  const SavingsSums& sums) {
  std::vector<std::string> out{name, kwh_cell(kwh_of(sums.energy_mj))};
  const Saving saving = saving_of(sums.saving);
  const auto saved = energy_saved(saving);
  const auto share = saved_share(used_of(sums), saving);
  out.push_back(saved ? kwh_cell(kwh_of(saved->mean)) : "-");
  out.push_back(
      saved ? fmt::format("{} to {}", kwh_cell(kwh_of(saved->low)), kwh_cell(kwh_of(saved->high)))
            : "");
  out.push_back(share ? percent_text(share->mean, 1) : "");
  out.push_back(governed_share(used_of(sums), saving.energy));
  if (account.prices.has_price()) {
    out.push_back(priced_cell(sums.cost, sums.cost.used, money_cell));
    out.push_back(saved ? priced_cell(sums.cost, sums.cost.saved, money_cell) : "-");
  }
  if (account.prices.has_co2()) {
    out.push_back(priced_cell(sums.co2, sums.co2.used, grams_cell));
    out.push_back(saved ? priced_cell(sums.co2, sums.co2.saved, grams_cell) : "-");
  }
  return out;
}

Table table_of(const SavingsAccount& account) {
  std::vector<std::string> headings{account.by,          "kWh",   "saved kWh",
                                    "90 % sure between", "saved", "governed"};
  if (account.prices.has_price()) {
    headings.push_back(account.currency);
    headings.push_back("saved " + account.currency);
  }
  if (account.prices.has_co2()) {
    headings.emplace_back("kg CO2");
    headings.emplace_back("saved kg");
  }
  Table out(std::move(headings));
  for (const SavingsBillLine& line : account.bill.lines)
    out.add(cells_of(account, name_cell(account, line.name), line.sums));
  out.add(cells_of(account, "total", account.bill.total), Paint::strong);
  return out;
}

// Whole tenths, and never 100 where something is missing.
std::string covered_text(const SavingsAnswer& answer) {
  if (answer.possible_seconds <= 0) return "0";
  const double share = answer.covered_seconds / answer.possible_seconds;
  if (share > 0 && share < 0.001) return "less than 0.1";
  return share >= 1 ? "100" : fixed_text(std::floor(share * 1000) / 10, 1);
}

std::string coverage_sentence(const SavingsAccount& account) {
  const SavingsAnswer& answer = account.answer;
  std::string out = fmt::format("Known for {} % of the time of {} GPU{}", covered_text(answer),
                                answer.gpus, answer.gpus == 1 ? "" : "s");
  const SavingsSums& total = account.bill.total;
  if (total.energy_mj > 0 && total.saving.energy_mj > 0) {
    out += "; " + governed_sentence(used_of(total), saving_of(total.saving).energy);
  } else {
    out += "; no policy with an estimate governed them, so what was saved is not known";
  }
  return out + ".\n" + kBoardsOnly + "\n";
}

std::string periods_text(const std::vector<std::pair<WallTime, WallTime>>& periods) {
  constexpr std::size_t kMostNamed = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(periods.size(), kMostNamed); ++i)
    out += fmt::format("{}{} to {}", i == 0 ? "" : ", ", when_text(periods[i].first),
                       when_text(periods[i].second));
  if (periods.size() > kMostNamed) out += fmt::format(" and {} more", periods.size() - kMostNamed);
  return out;
}

std::int64_t unpriced_mj(const SavingsAccount& account) {
  const SavingsSums& total = account.bill.total;
  return std::max(account.prices.has_price() ? total.cost.unpriced_mj : 0,
                  account.prices.has_co2() ? total.co2.unpriced_mj : 0);
}

std::string price_sentences(const SavingsAccount& account) {
  std::string out;
  const EnergyPrices& file = account.prices.by_hour;
  if (!account.price_file.empty())
    out += fmt::format("Hour by hour from {}: {}, {}.\n", account.price_file,
                       file.source.empty() ? "no source is named" : "source " + file.source,
                       file.date.empty() ? "no date is named" : "as of " + file.date);
  std::vector<std::string> single;
  if (!file.has_prices && account.prices.otherwise.per_kwh)
    single.push_back(
        fmt::format("{:g} {} a kWh", *account.prices.otherwise.per_kwh, account.currency));
  if (!file.has_co2 && account.prices.otherwise.co2_g_per_kwh)
    single.push_back(fmt::format("{:g} g of CO2 a kWh", *account.prices.otherwise.co2_g_per_kwh));
  if (!single.empty()) out += fmt::format("At all hours {}.\n", fmt::join(single, " and "));
  if (!account.bill.unpriced.empty())
    out += fmt::format("* {} kWh are without a figure, which the file does not have: {}.\n",
                       kwh_cell(kwh_of(unpriced_mj(account))), periods_text(account.bill.unpriced));
  return out;
}

// --- JSON and CSV --------------------------------------------------------------------------------

Json priced_json(const PricedSums& sums) {
  if (!sums.any) return nullptr;
  constexpr double kNinety = kNinetyPercent;
  return {{"used", sums.used},
          {"saved", sums.saved},
          {"saved_low", sums.saved - kNinety * sums.saved_sd},
          {"saved_high", sums.saved + kNinety * sums.saved_sd},
          {"unpriced_kwh", kwh_of(sums.unpriced_mj)}};
}

Json sums_json(const SavingsAccount& account, const SavingsSums& sums) {
  Json out = {{"energy_kwh", kwh_of(sums.energy_mj)},
              {"covered_seconds", static_cast<double>(sums.covered_ms) / 1000}};
  const Saving saving = saving_of(sums.saving);
  const auto saved = energy_saved(saving);
  out["saved_of_kwh"] = kwh_of(sums.saving.energy_mj);
  out["saved_kwh"] = saved ? Json(kwh_of(saved->mean)) : Json();
  out["saved_low_kwh"] = saved ? Json(kwh_of(saved->low)) : Json();
  out["saved_high_kwh"] = saved ? Json(kwh_of(saved->high)) : Json();
  const SavedView view = saved_view(used_of(sums), saved ? std::optional(saving) : std::nullopt);
  out["energy_saving_ratio"] = or_null(view.energy_saving_ratio);
  out["governed_saving_ratio"] = or_null(view.governed_saving_ratio);
  if (account.prices.has_price()) out["cost"] = priced_json(sums.cost);
  if (account.prices.has_co2()) out["co2_grams"] = priced_json(sums.co2);
  return out;
}

Json prices_json(const SavingsAccount& account) {
  const EnergyPrices& file = account.prices.by_hour;
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json unpriced = Json::array();
  for (const auto& [begin, end] : account.bill.unpriced)
    unpriced.push_back({{"begin_unix_seconds", seconds(begin.time_since_epoch())},
                        {"end_unix_seconds", seconds(end.time_since_epoch())}});
  const EnergyPrice& otherwise = account.prices.otherwise;
  return {{"currency", account.currency},
          {"file", text(account.price_file)},
          {"source", text(file.source)},
          {"date", text(file.date)},
          {"price_per_kwh", file.has_prices ? Json() : or_null(otherwise.per_kwh)},
          {"co2_g_per_kwh", file.has_co2 ? Json() : or_null(otherwise.co2_g_per_kwh)},
          {"unpriced", std::move(unpriced)}};
}

std::string csv_priced(bool wanted, const PricedSums& sums) {
  if (!wanted || !sums.any) return ",,";
  return fmt::format("{:.6f},{:.6f},{:.9f}", sums.used, sums.saved, kwh_of(sums.unpriced_mj));
}

std::string csv_line(const SavingsAccount& account, const char* kind, const std::string& name,
                     const SavingsSums& sums) {
  const auto saved = energy_saved(saving_of(sums.saving));
  std::string out =
      fmt::format("{},{},{:.3f},{:.9f}", kind, csv_text(name),
                  static_cast<double>(sums.covered_ms) / 1000, kwh_of(sums.energy_mj));
  out += saved ? fmt::format(",{:.9f},{:.9f},{:.9f}", kwh_of(saved->mean), kwh_of(saved->low),
                             kwh_of(saved->high))
               : ",,,";
  return out + "," + csv_priced(account.prices.has_price(), sums.cost) + "," +
         csv_priced(account.prices.has_co2(), sums.co2) + "\n";
}

}  // namespace

SavingsAccount make_savings_account(SavingsAnswer answer, const std::string& by, PriceRule prices) {
  SavingsAccount out;
  out.by = by;
  out.bill = make_savings_bill(hours_of(answer), prices, [&](const SavingsHour& hour) {
    return by == "day" ? day_text(hour.hour) : hour.key;
  });
  out.answer = std::move(answer);
  out.prices = std::move(prices);
  return out;
}

std::string savings_text(const SavingsAccount& account, std::size_t width, WallTime now) {
  const SavingsAnswer& answer = account.answer;
  const WallTime from = wall_of(answer.from_unix_seconds);
  const WallTime to = std::clamp(now, from, std::max(from, wall_of(answer.to_unix_seconds)));
  std::string out = fmt::format("{} to {}", when_text(from), when_text(to));
  const auto kept_from = answer.first_unix_seconds;
  if (account.bill.lines.empty()) {
    out += ": nothing is kept of that time";
    if (kept_from) out += fmt::format("; kept is since {}", when_text(wall_of(*kept_from)));
    return out + "\n";
  }
  if (kept_from && *kept_from > answer.from_unix_seconds)
    out += fmt::format("; kept since {}", when_text(wall_of(*kept_from)));
  // What goes first where there is no room: carbon, then money used, then the interval.
  std::vector<std::size_t> optional;
  const std::size_t columns =
      6 + (account.prices.has_price() ? 2 : 0) + (account.prices.has_co2() ? 2 : 0);
  for (std::size_t i = columns; i-- > 6;) optional.push_back(i);
  optional.insert(optional.end(), {5, 3});
  return out + "\n" + table_of(account).text(width, optional) + coverage_sentence(account) +
         price_sentences(account);
}

Json savings_json(const SavingsAccount& account) {
  const SavingsAnswer& answer = account.answer;
  Json lines = Json::array();
  for (const SavingsBillLine& line : account.bill.lines) {
    Json one = {{"name", line.name}};
    if (account.by == "gpu")
      for (const SavingsLineView& gpu : answer.lines)
        if (gpu.key == line.name && gpu.index) one["index"] = *gpu.index;
    one.update(sums_json(account, line.sums));
    lines.push_back(std::move(one));
  }
  return {{"by", account.by},
          {"method", answer.method},
          {"estimated", true},
          {"from_unix_seconds", answer.from_unix_seconds},
          {"to_unix_seconds", answer.to_unix_seconds},
          {"first_unix_seconds", or_null(answer.first_unix_seconds)},
          {"last_unix_seconds", or_null(answer.last_unix_seconds)},
          {"gpus", answer.gpus},
          {"covered_seconds", answer.covered_seconds},
          {"possible_seconds", answer.possible_seconds},
          {"prices", prices_json(account)},
          {"lines", std::move(lines)},
          {"total", sums_json(account, account.bill.total)}};
}

std::string savings_csv(const SavingsAccount& account) {
  std::string out =
      "kind,name,covered_seconds,energy_kwh,saved_kwh,saved_low_kwh,saved_high_kwh,cost,"
      "saved_cost,cost_unpriced_kwh,co2_grams,saved_co2_grams,co2_unpriced_kwh\n";
  for (const SavingsBillLine& line : account.bill.lines)
    out += csv_line(account, account.by.c_str(), line.name, line.sums);
  return out + csv_line(account, "total", "", account.bill.total);
}

}  // namespace derate::cli
