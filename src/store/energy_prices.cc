#include "store/energy_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/printing.h"
#include "base/text.h"
#include "base/when.h"

namespace derate {
namespace {

constexpr Duration kLongestPeriod = std::chrono::hours(1);

// Which cell of a row is what.
struct PriceColumns {
  std::optional<std::size_t> time, per_kwh, co2;
  std::size_t count = 0;
};

Error bad_line(std::size_t line, const std::string& what) {
  return {Errc::bad_data, fmt::format("line {}: {}", line, what)};
}

Result<PriceColumns> columns_of(std::string_view heading, std::size_t line) {
  PriceColumns out;
  for (const std::string_view cell : split(heading, ',')) {
    const std::string name = to_lower(trim(cell));
    std::optional<std::size_t>* column = name == "time"            ? &out.time
                                         : name == "price_per_kwh" ? &out.per_kwh
                                         : name == "co2_g_per_kwh" ? &out.co2
                                                                   : nullptr;
    if (column != nullptr && *column)
      return bad_line(line, fmt::format("there are two columns '{}'", name));
    if (column != nullptr) *column = out.count;
    ++out.count;
  }
  if (out.time && (out.per_kwh || out.co2)) return out;
  return bad_line(line, fmt::format("'{}': wanted the columns time and price_per_kwh or "
                                    "co2_g_per_kwh",
                                    log_text(heading, 80)));
}

Result<std::optional<double>> figure_of(std::string_view cell, const char* name, double lowest,
                                        std::size_t line) {
  constexpr double kHighest = 1e6;
  if (cell.empty()) return std::optional<double>();
  const auto value = parse_double(cell);
  if (value && *value >= lowest && *value <= kHighest) return value;
  return bad_line(line, fmt::format("{} '{}': allowed is a number in [{}, {}], or nothing", name,
                                    log_text(cell, 40), lowest, kHighest));
}

// Local times do not tell the second of an hour that comes twice: it is the one that is later than
// the row before.
Result<WallTime> time_of(std::string_view cell, const EnergyPrices& prices, std::size_t line) {
  WallTime out = TRY(parse_when(cell, {}).with(fmt::format("line {}", line)));
  if (prices.periods.empty() || out > prices.periods.back().begin) return out;
  const WallTime again = out + std::chrono::hours(1);
  if (again > prices.periods.back().begin && when_text(again) == when_text(out)) return again;
  return bad_line(line,
                  fmt::format("time '{}' is not after that of the row before", log_text(cell, 40)));
}

Result<void> add_row(EnergyPrices& prices, const PriceColumns& columns, std::string_view text,
                     std::size_t line) {
  std::vector<std::string_view> cells = split(text, ',');
  if (cells.size() != columns.count)
    return bad_line(line,
                    fmt::format("{} cells, and the heading has {}", cells.size(), columns.count));
  for (std::string_view& cell : cells) cell = trim(cell);
  EnergyPrices::Period row;
  // Power may cost less than nothing.
  constexpr double kLowestPrice = -1e6;
  if (columns.per_kwh)
    row.price.per_kwh =
        TRY(figure_of(cells[*columns.per_kwh], "price_per_kwh", kLowestPrice, line));
  if (columns.co2)
    row.price.co2_g_per_kwh = TRY(figure_of(cells[*columns.co2], "co2_g_per_kwh", 0, line));
  // The hour that never comes in spring, which some sources write without a figure.
  if (row.price == EnergyPrice{}) return {};
  row.begin = TRY(time_of(cells[*columns.time], prices, line));
  row.length = kLongestPeriod;
  if (!prices.periods.empty()) {
    EnergyPrices::Period& before = prices.periods.back();
    before.length = std::min(before.length, row.begin - before.begin);
  }
  prices.periods.push_back(row);
  return {};
}

// "# source: ENTSO-E": what it names, or nothing.
void read_remark(EnergyPrices& prices, std::string_view text) {
  text = trim(text.substr(1));
  const auto colon = text.find(':');
  if (colon == text.npos) return;
  const std::string name = to_lower(trim(text.substr(0, colon)));
  const std::string value = printing_text(trim(text.substr(colon + 1)));
  if (name == "source") prices.source = value;
  if (name == "date") prices.date = value;
  if (name == "currency") prices.currency = value;
}

}  // namespace

Result<EnergyPrices> parse_prices(std::string_view text) {
  EnergyPrices out;
  std::optional<PriceColumns> columns;
  std::size_t number = 0;
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // that spreadsheets begin UTF-8 with
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  for (std::string_view line : split(text, '\n')) {
    ++number;
    line = trim(line);
    if (line.empty()) continue;
    if (line.starts_with('#')) {
      read_remark(out, line);
    } else if (!columns) {
      columns = TRY(columns_of(line, number));
    } else {
      TRY(add_row(out, *columns, line, number));
    }
  }
  if (out.periods.empty()) return Error{Errc::bad_data, "there is no row with a figure"};
  out.has_prices = columns->per_kwh.has_value();
  out.has_co2 = columns->co2.has_value();
  return out;
}

Result<EnergyPrices> read_prices(const std::string& path) {
  return parse_prices(TRY(read_file(path))).with(path);
}

EnergyPrice price_of_hour(const EnergyPrices& prices, WallTime hour) {
  const WallTime end = hour + std::chrono::hours(1);
  auto at = std::partition_point(
      prices.periods.begin(), prices.periods.end(),
      [&](const EnergyPrices::Period& period) { return period.begin + period.length <= hour; });
  double price = 0, co2 = 0;
  Duration priced{}, told{};
  for (; at != prices.periods.end() && at->begin < end; ++at) {
    const Duration part = std::min(end, at->begin + at->length) - std::max(hour, at->begin);
    if (at->price.per_kwh) price += *at->price.per_kwh * seconds(part), priced += part;
    if (at->price.co2_g_per_kwh) co2 += *at->price.co2_g_per_kwh * seconds(part), told += part;
  }
  EnergyPrice out;
  const double hour_s = seconds(kLongestPeriod);
  if (priced == kLongestPeriod) out.per_kwh = price / hour_s;
  if (told == kLongestPeriod) out.co2_g_per_kwh = co2 / hour_s;
  return out;
}

}  // namespace derate
