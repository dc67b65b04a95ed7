#include "device/sim/csv_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace derate {
namespace {

// Beyond any measurement.
constexpr std::size_t kLargestTable = std::size_t{64} << 20;  // bytes
constexpr std::size_t kMostRows = 100'000, kMostColumns = 1025;

}  // namespace

Error cell_error(std::string_view file, std::size_t line, std::string_view column,
                 std::string_view cell, const char* wanted) {
  return {Errc::bad_data,
          fmt::format("{}:{}: {} '{}': wanted {}", file, line, column, cell, wanted)};
}

Error too_many(std::string_view file, std::size_t line, const char* what, std::size_t allowed) {
  return {Errc::bad_data,
          fmt::format("{}:{}: too many {}: allowed are {}", file, line, what, allowed)};
}

Result<Csv> parse_csv(std::string_view text, std::string_view file) {
  if (text.size() > kLargestTable)
    return Error{Errc::bad_data,
                 fmt::format("{}: {} bytes: allowed are {}", file, text.size(), kLargestTable)};
  Csv csv;
  std::size_t number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#') continue;
    auto cells = split(line, ',');
    for (auto& cell : cells) cell = trim(cell);
    if (cells.size() > kMostColumns) return too_many(file, number, "columns", kMostColumns);
    if (csv.rows.size() == kMostRows) return too_many(file, number, "rows", kMostRows);
    if (csv.header.empty()) {
      csv.header = std::move(cells);
      csv.header_line = number;
      continue;
    }
    if (cells.size() != csv.header.size())
      return Error{Errc::bad_data, fmt::format("{}:{}: {} cells where the header has {}", file,
                                               number, cells.size(), csv.header.size())};
    csv.rows.push_back({number, std::move(cells)});
  }
  if (csv.header.empty()) return Error{Errc::bad_data, fmt::format("{}:1: no header line", file)};
  return csv;
}

Result<std::size_t> column(const Csv& csv, std::string_view name, std::string_view file) {
  const auto at = std::find(csv.header.begin(), csv.header.end(), name);
  if (at == csv.header.end())
    return Error{Errc::bad_data, fmt::format("{}:{}: no column '{}'", file, csv.header_line, name)};
  return static_cast<std::size_t>(at - csv.header.begin());
}

Result<double> number_in(const Csv& csv, const Csv::Row& row, std::size_t at, double least,
                         double most, std::string_view file) {
  const auto value = parse_double(row.cells[at]);
  if (value && *value >= least && *value <= most) return *value;
  return cell_error(file, row.line, csv.header[at], row.cells[at],
                    fmt::format("a number in [{}, {}]", least, most).c_str());
}

}  // namespace derate
