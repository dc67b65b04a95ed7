#include "bill_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/saved_view.h"
#include "attribute_view.h"
#include "base/energy_text.h"
#include "base/json.h"
#include "base/printing.h"
#include "base/when.h"
#include "govern/saving_json.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr double kMillijoulesInKwh = 3.6e9;

double joules(std::int64_t mj) { return static_cast<double>(mj) / 1000; }
double kwh(std::int64_t mj) { return static_cast<double>(mj) / kMillijoulesInKwh; }

std::string unnamed(BillBy by) { return fmt::format("(no {})", to_string(by)); }

std::string money_text(const BillPrices& prices, std::int64_t mj) {
  const double cost = kwh(mj) * prices.per_kwh.value_or(0);
  return fmt::format("{:.{}f}", cost, cost != 0 && cost < 1 ? 4 : 2);
}

std::string mass_text(const BillPrices& prices, std::int64_t mj) {
  const double grams = kwh(mj) * prices.co2_g_per_kwh.value_or(0);
  return grams >= 1000 ? fmt::format("{:.2f} kg", grams / 1000) : fmt::format("{:.2f} g", grams);
}

std::int64_t saved_mj(const BillSaving& known) {
  return std::llround((known.saving.energy_at_highest - known.saving.energy).value() * 1000);
}

// "0.361 kWh, about 8.6 %" of all energy of the line.
std::string saved_cell(std::int64_t mj, const UsageSavings& savings) {
  const auto known = bill_saving(savings);
  if (!known) return "-";
  const auto share = saved_share(Joules(joules(mj)), known->saving);
  return fmt::format("{}, about {}", kwh_text(joules(saved_mj(*known))),
                     percent_text(share ? share->mean : 0, 1));
}
std::string governed_cell(std::int64_t mj, const UsageSavings& savings) {
  const auto known = bill_saving(savings);
  return known ? governed_share(Joules(joules(mj)), known->saving.energy) : "-";
}

// Of any of its rows one figure is known.
bool tells_savings(const Bill& bill) {
  return bill_saving(bill.boards.unallocated_savings) ||
         std::any_of(bill.lines.begin(), bill.lines.end(),
                     [](const BillLine& line) { return bill_saving(line.sums.savings); });
}

std::optional<std::int64_t> deviation_of(const UsageSums& sums) {
  if (sums.sigma_mj == 0 && sums.unsure_mj >= sums.dynamic_mj) return std::nullopt;
  return sums.sigma_mj + sums.unsure_mj;
}

// Empty where the method never said how sure it was.
std::optional<std::int64_t> prior_of(const UsageSums& sums) {
  return deviation_of(sums) ? std::optional(sums.prior_mj) : std::nullopt;
}

// Of all lines that say.
std::optional<std::int64_t> prior_of(const Bill& bill) {
  std::optional<std::int64_t> out;
  for (const BillLine& line : bill.lines)
    if (const auto part = prior_of(line.sums)) out = out.value_or(0) + *part;
  return out;
}

// Of any line it is so much that its owner should know.
bool tells_prior(const Bill& bill) {
  constexpr double kLeastTold = 0.01;
  return std::any_of(bill.lines.begin(), bill.lines.end(), [](const BillLine& line) {
    const auto prior_mj = prior_of(line.sums).value_or(0);
    return prior_mj > 0 && joules(prior_mj) >= kLeastTold * joules(line.sums.total_mj());
  });
}

std::string part_text(std::int64_t part_mj, std::int64_t of_mj, int decimals) {
  return of_mj > 0 ? percent_text(joules(part_mj) / joules(of_mj), decimals) : "-";
}

// Which of the columns that not every bill has.
struct Columns {
  bool prior, savings;
};

struct TableRow {
  std::string name;
  std::int64_t mj = 0;
  std::optional<std::int64_t> deviation_mj, prior_mj;
  const UsageSavings& savings;
};

std::vector<std::string> cells_of(const BillAccount& account, Columns columns,
                                  const TableRow& row) {
  std::vector<std::string> out{
      row.name, fmt::format("{:.6f}", kwh(row.mj)),
      row.deviation_mj ? fmt::format("±{}", kwh_text(joules(*row.deviation_mj) * kNinetyPercent))
                       : "",
      part_text(row.mj, account.bill.boards.board_mj, 1)};
  if (columns.prior) out.push_back(row.prior_mj ? part_text(*row.prior_mj, row.mj, 0) : "-");
  if (account.prices.per_kwh) out.push_back(money_text(account.prices, row.mj));
  if (account.prices.co2_g_per_kwh) out.push_back(mass_text(account.prices, row.mj));
  if (columns.savings) {
    out.push_back(saved_cell(row.mj, row.savings));
    out.push_back(governed_cell(row.mj, row.savings));
  }
  return out;
}

// A day's line has what its tenants used; what nobody used is in the line `unallocated`.
std::string heading_of(BillBy by) {
  return by == BillBy::day ? "day, of tenants" : std::string(to_string(by));
}

// "GPU 6" of one that is there now.
std::string shown_name(const BillAccount& account, const std::string& name) {
  if (name.empty()) return unnamed(account.by);
  const auto index = account.index_of.find(name);
  return index != account.index_of.end() ? fmt::format("GPU {}", index->second) : cut(name, 48);
}

Table table_of(const BillAccount& account) {
  const Bill& bill = account.bill;
  const Columns columns{.prior = tells_prior(bill), .savings = tells_savings(bill)};
  std::vector<std::string> headings{heading_of(account.by), "kWh", "±90%", "share"};
  if (columns.prior) headings.push_back("assumed");
  if (account.prices.per_kwh) headings.push_back(account.prices.currency);
  if (account.prices.co2_g_per_kwh) headings.push_back("CO2");
  if (columns.savings) {
    headings.emplace_back("saved");
    headings.emplace_back("governed");
  }
  Table out(std::move(headings));
  for (const BillLine& line : bill.lines)
    out.add(cells_of(account, columns,
                     {.name = shown_name(account, line.name),
                      .mj = line.sums.total_mj(),
                      .deviation_mj = deviation_of(line.sums),
                      .prior_mj = prior_of(line.sums),
                      .savings = line.sums.savings}));
  if (account.by != BillBy::gpu)
    out.add(cells_of(account, columns,
                     {.name = "unallocated",
                      .mj = bill.boards.unallocated_mj,
                      .savings = bill.boards.unallocated_savings}),
            Paint::dim);
  out.add(cells_of(account, columns,
                   {.name = "total",
                    .mj = bill.boards.board_mj,
                    .prior_mj = prior_of(bill),
                    .savings = bill.savings}),
          Paint::strong);
  return out;
}

// All that was used, and what it would have been at the highest clock.
Saving whole_of(std::int64_t used_mj, Saving governed) {
  const Joules used = std::max(Joules(joules(used_mj)), governed.energy);
  governed.energy_at_highest += used - governed.energy;
  governed.energy = used;
  return governed;
}

// What of the total is not there to be saved is said, too: what no policy with curves governed.
std::string saved_sentence(const BillAccount& account) {
  const Bill& bill = account.bill;
  if (bill.savings.size() > 1) {
    std::string methods;
    for (const auto& [method, sums] : bill.savings)
      methods += (methods.empty() ? "" : " and ") + method;
    return fmt::format(
        "What was saved was estimated by {}, which are not added up: bill their "
        "times apart.\n",
        methods);
  }
  const auto known = bill_saving(bill.savings);
  if (!known) return {};
  std::string out = "Saved " + saving_text(whole_of(bill.boards.board_mj, known->saving));
  if (account.prices.per_kwh)
    out += fmt::format(", {} {}", money_text(account.prices, saved_mj(*known)),
                       account.prices.currency);
  if (account.prices.co2_g_per_kwh)
    out += fmt::format(", {} of CO2", mass_text(account.prices, saved_mj(*known)));
  return out + "; " +
         governed_sentence(Joules(joules(bill.boards.board_mj)), known->saving.energy) + ".\n";
}

// ": 2026-11-01 12:03 to 2026-11-01 12:04, ... and 2 more".
std::string losses_text(const std::vector<UsageLoss>& losses) {
  constexpr std::size_t kMostNamed = 5;
  std::string out;
  for (std::size_t i = 0; i < std::min(losses.size(), kMostNamed); ++i)
    out += fmt::format("{}{} to {}", i == 0 ? ": " : ", ", when_text(losses[i].from),
                       when_text(losses[i].to));
  if (losses.size() > kMostNamed) out += fmt::format(" and {} more", losses.size() - kMostNamed);
  return out;
}

// Shares are of all energy of the line, `mj`.
Json bill_saving_json(const BillPrices& prices, std::int64_t mj, const UsageSavings& savings) {
  const auto known = bill_saving(savings);
  if (!known) return nullptr;
  Json out = energy_saving_json(known->saving, known->method);
  const SavedView view = saved_view(Joules(joules(mj)), known->saving);
  out["energy_saving_ratio"] = or_null(view.energy_saving_ratio);
  out["energy_saving_low_ratio"] = or_null(view.energy_saving_low_ratio);
  out["energy_saving_high_ratio"] = or_null(view.energy_saving_high_ratio);
  out["governed_saving_ratio"] = or_null(view.governed_saving_ratio);
  const std::int64_t saved = saved_mj(*known);
  out["saved_joules"] = joules(saved);
  if (prices.per_kwh) out["saved_cost"] = kwh(saved) * *prices.per_kwh;
  if (prices.co2_g_per_kwh) out["saved_co2_grams"] = kwh(saved) * *prices.co2_g_per_kwh;
  return out;
}

Json priced(const BillAccount& account, Json line, std::int64_t mj, const UsageSavings& savings) {
  line["energy_joules"] = joules(mj);
  line["energy_kwh"] = kwh(mj);
  if (account.prices.per_kwh) line["cost"] = kwh(mj) * *account.prices.per_kwh;
  if (account.prices.co2_g_per_kwh) line["co2_grams"] = kwh(mj) * *account.prices.co2_g_per_kwh;
  line["saving"] = bill_saving_json(account.prices, mj, savings);
  return line;
}

Json joules_json(std::optional<std::int64_t> mj) { return mj ? Json(joules(*mj)) : Json(); }

Json line_json(const BillAccount& account, const BillLine& line) {
  Json out = priced(account, {{"name", line.name}}, line.sums.total_mj(), line.sums.savings);
  if (const auto gpu = account.index_of.find(line.name); gpu != account.index_of.end())
    out["index"] = gpu->second;
  out["base_joules"] = joules(line.sums.base_mj);
  out["context_joules"] = joules(line.sums.context_mj);
  out["dynamic_joules"] = joules(line.sums.dynamic_mj);
  out["energy_sigma_joules"] = joules_json(deviation_of(line.sums));
  out["prior_joules"] = joules_json(prior_of(line.sums));
  out["seconds"] = static_cast<double>(line.sums.time_ms) / 1000;
  return out;
}

// Of so much energy at so much a kilowatt-hour.
std::string csv_product(std::int64_t mj, const std::optional<double>& per_kwh) {
  return per_kwh ? fmt::format("{:.6f}", kwh(mj) * *per_kwh) : "";
}

std::string csv_joules(std::optional<std::int64_t> mj) {
  return mj ? fmt::format("{:.3f}", joules(*mj)) : "";
}

std::string saving_cells(const BillPrices& prices, std::int64_t mj, const UsageSavings& savings) {
  const auto known = bill_saving(savings);
  if (!known) return ",,,,,,";
  const auto share = saved_share(Joules(joules(mj)), known->saving).value_or(ShareEstimate{});
  const std::int64_t saved = saved_mj(*known);
  return fmt::format("{},{:.3f},{:.6f},{:.6f},{:.6f},{},{}", csv_text(known->method), joules(saved),
                     share.mean, share.low, share.high, csv_product(saved, prices.per_kwh),
                     csv_product(saved, prices.co2_g_per_kwh));
}

// Joules with three decimals are exact: whole millijoules.
std::string csv_row(const BillAccount& account, const std::string& kind, const std::string& name,
                    std::int64_t mj, const std::string& parts, const UsageSavings& savings) {
  return fmt::format("{},{},{:.3f},{},{:.9f},{},{},{}\n", kind, csv_text(name), joules(mj), parts,
                     kwh(mj), csv_product(mj, account.prices.per_kwh),
                     csv_product(mj, account.prices.co2_g_per_kwh),
                     saving_cells(account.prices, mj, savings));
}

}  // namespace

std::string bill_text(const BillAccount& account) {
  const Bill& bill = account.bill;
  std::string out = fmt::format("{} to {}", when_text(account.from), when_text(account.to));
  if (!account.first) return out + ": nothing is kept of that time\n";
  if (*account.first > account.from || *account.last < account.to)
    out += fmt::format("; kept: {} to {}", when_text(*account.first), when_text(*account.last));
  out += "\n" + table_of(account).text() + saved_sentence(account) + kBoardsOnly + "\n";
  if (tells_prior(bill))
    out +=
        fmt::format("{} were split by assumption: those tenants had not been measured for long\n",
                    kwh_text(joules(prior_of(bill).value_or(0))));
  if (bill.boards.lost_ms > 0)
    out += fmt::format("the energy of a time of {} is not known and is on no bill{}\n",
                       span_text(std::chrono::milliseconds(bill.boards.lost_ms)),
                       losses_text(account.losses));
  if (account.broken_rows > 0)
    out += fmt::format("{} rows of the file are not what was written: a line may be wrong\n",
                       account.broken_rows);
  if (bill.boards.by_power_mj > 0)
    out += fmt::format("{} are power readings times time: no counter could be used\n",
                       kwh_text(joules(bill.boards.by_power_mj)));
  return out;
}

Json bill_json(const BillAccount& account) {
  const auto unix = [](WallTime time) { return seconds(time.time_since_epoch()); };
  const UsageBoardSums& boards = account.bill.boards;
  Json lines = Json::array();
  for (const BillLine& line : account.bill.lines) lines.push_back(line_json(account, line));
  Json out = {{"by", to_string(account.by)},
              {"from_unix_seconds", unix(account.from)},
              {"to_unix_seconds", unix(account.to)},
              {"first_unix_seconds", account.first ? Json(unix(*account.first)) : Json()},
              {"last_unix_seconds", account.last ? Json(unix(*account.last)) : Json()}};
  if (account.prices.per_kwh) out["currency"] = account.prices.currency;
  out["lines"] = std::move(lines);
  out["unallocated"] =
      priced(account, Json::object(), boards.unallocated_mj, boards.unallocated_savings);
  out["total"] = priced(account, Json::object(), boards.board_mj, account.bill.savings);
  out["total"]["prior_joules"] = joules_json(prior_of(account.bill));
  out["by_power_joules"] = joules(boards.by_power_mj);
  out["seconds"] = static_cast<double>(boards.time_ms) / 1000;
  out["lost_seconds"] = static_cast<double>(boards.lost_ms) / 1000;
  Json losses = Json::array();
  for (const UsageLoss& loss : account.losses)
    losses.push_back({{"from_unix_seconds", unix(loss.from)},
                      {"to_unix_seconds", unix(loss.to)},
                      {"lost_seconds", static_cast<double>(loss.lost_ms) / 1000}});
  out["losses"] = std::move(losses);
  out["broken_rows"] = account.broken_rows;
  return out;
}

std::string bill_csv(const BillAccount& account) {
  std::string out =
      "kind,name,energy_joules,base_joules,context_joules,dynamic_joules,energy_sigma_joules,"
      "prior_joules,seconds,energy_kwh,cost,co2_grams,saving_method,saved_joules,energy_saving_"
      "ratio,"
      "energy_saving_low_ratio,energy_saving_high_ratio,saved_cost,saved_co2_grams\n";
  for (const BillLine& line : account.bill.lines) {
    const UsageSums& sums = line.sums;
    out += csv_row(account, to_string(account.by), line.name, sums.total_mj(),
                   fmt::format("{:.3f},{:.3f},{:.3f},{},{},{:.3f}", joules(sums.base_mj),
                               joules(sums.context_mj), joules(sums.dynamic_mj),
                               csv_joules(deviation_of(sums)), csv_joules(prior_of(sums)),
                               static_cast<double>(sums.time_ms) / 1000),
                   sums.savings);
  }
  const UsageBoardSums& boards = account.bill.boards;
  out += csv_row(account, "unallocated", "", boards.unallocated_mj, ",,,,,",
                 boards.unallocated_savings);
  return out + csv_row(account, "total", "", boards.board_mj,
                       fmt::format(",,,,{},{:.3f}", csv_joules(prior_of(account.bill)),
                                   static_cast<double>(boards.time_ms) / 1000),
                       account.bill.savings);
}

}  // namespace derate::cli
