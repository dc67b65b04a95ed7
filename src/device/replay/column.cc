#include "device/replay/column.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "device/replay/trace_text.h"

namespace derate {
namespace {

// Up to here value -> cell -> value is exact for every value that is a multiple of the resolution.
constexpr double kLargest = 1125899906842624.0;  // 2^50

double power_of_ten(int n) {
  double p = 1;
  for (int i = 0; i < n; ++i) p *= 10;
  return p;
}

}  // namespace

namespace detail {

void put_number(const Column& column, double value, std::string& out) {
  const double shift = power_of_ten(column.decimals);
  const double steps = value * (column.scale * shift);
  if (!(std::abs(steps) <= kLargest)) return;  // also NaN
  const long long n = std::llround(steps);
  const auto unit = static_cast<long long>(shift);
  if (n < 0) out += '-';
  fmt::format_to(std::back_inserter(out), "{}", std::abs(n) / unit);
  const long long fraction = std::abs(n) % unit;
  if (fraction == 0) return;
  out += fmt::format(".{:0{}}", fraction, column.decimals);
  out.erase(out.find_last_not_of('0') + 1);
}

bool take_number(const Column& column, std::string_view cell, std::optional<double>& value) {
  value.reset();
  if (cell.empty()) return true;
  const auto read = parse_double(cell);
  const double shift = power_of_ten(column.decimals);
  if (!read || std::abs(*read * shift) > kLargest) return false;
  // One division of two exact numbers: the same double that a driver's integer gives.
  value = static_cast<double>(std::llround(*read * shift)) / (column.scale * shift);
  return true;
}

void put_bits(std::uint64_t value, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{:#x}", value);
}

bool take_bits(std::string_view cell, std::optional<std::uint64_t>& value) {
  value.reset();
  if (cell.empty()) return true;
  const bool hex = cell.starts_with("0x");
  if (hex) cell.remove_prefix(2);
  std::uint64_t read = 0;
  const auto end = cell.data() + cell.size();
  const auto [at, error] = std::from_chars(cell.data(), end, read, hex ? 16 : 10);
  if (error != std::errc{} || at != end) return false;
  value = read;
  return true;
}

void put_count(int value, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{}", value);
}

bool take_count(std::string_view cell, std::optional<int>& value) {
  constexpr int kLargestCount = 1'000'000;  // no machine runs as many processes
  value.reset();
  if (cell.empty()) return true;
  const auto read = parse_integer(cell);
  if (!read || *read < 0 || *read > kLargestCount) return false;
  value = static_cast<int>(*read);
  return true;
}

}  // namespace detail

Result<void> take_cell(const Column& column, std::string_view cell, Sample& sample) {
  if (column.take(column, cell, sample)) return {};
  return Error{Errc::bad_data, fmt::format("{} {}: allowed is {}, or nothing", column.name,
                                           shown(cell), column.allowed)};
}

Result<Layout> read_layout(std::string_view names, std::span<const Column> table,
                           std::string_view time, std::string_view label) {
  const std::vector<std::string_view> cells = split(names, ',');
  Layout layout;
  bool timed = false;
  std::string unknown, known(time);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string_view name = cells[i];
    const auto before = std::span(cells).first(i);
    if (std::find(before.begin(), before.end(), name) != before.end())
      return Error{Errc::bad_data, fmt::format("column {} stands there twice", shown(name))};
    const auto column =
        std::find_if(table.begin(), table.end(), [&](const Column& c) { return name == c.name; });
    layout.columns.push_back(column == table.end() ? nullptr : &*column);
    if (name == time) {
      layout.time = i;
      timed = true;
    } else if (!label.empty() && name == label) {
      layout.label = i;
    } else if (column == table.end()) {
      unknown += (unknown.empty() ? "" : ", ") + shown(name);
    }
  }
  if (!label.empty()) known += fmt::format(", {}", label);
  for (const Column& column : table) known += fmt::format(", {}", column.name);
  if (!unknown.empty())
    return Error{Errc::bad_data, fmt::format("unknown column {}: allowed are {}", unknown, known)};
  if (!timed)
    return Error{Errc::bad_data, fmt::format("no column {} among {}", time, shown(names))};
  return layout;
}

}  // namespace derate
