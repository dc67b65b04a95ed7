// The text form of each field of a Sample, as a cell of a table. A trace format's writer and reader
// know the fields only through this table of Columns (trace_format.cc, csv_trace.cc).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "core/sample.h"

namespace derate {

struct Column {
  const char* name;     // its unit last
  const char* meaning;  // one line for the documentation
  const char* allowed;  // what a cell may hold, for messages
  double scale;         // cell = value in the Sample's unit * scale, ...
  int decimals;         // ... rounded to so many decimals: the column's resolution
  // Appends the cell; nothing when the field is empty or has no place in the format.
  void (*put)(const Column& column, const Sample& sample, std::string& out);
  // False when the cell is malformed. An empty cell empties the field.
  bool (*take)(const Column& column, std::string_view cell, Sample& sample);
};

namespace detail {
void put_number(const Column& column, double value, std::string& out);
bool take_number(const Column& column, std::string_view cell, std::optional<double>& value);
void put_bits(std::uint64_t value, std::string& out);
bool take_bits(std::string_view cell, std::optional<std::uint64_t>& value);
void put_count(int value, std::string& out);
bool take_count(std::string_view cell, std::optional<int>& value);
}  // namespace detail

// The field that a pointer to a member of Sample or of its Activity names.
template <auto kField, class S>
auto& field_of(S& sample) {
  if constexpr (requires { sample.*kField; })
    return sample.*kField;
  else
    return sample.activity.*kField;
}

// A column of a quantity.
template <auto kField>
constexpr Column number_column(const char* name, double scale, int decimals, const char* meaning) {
  return {name,
          meaning,
          "a number of at most 15 digits",
          scale,
          decimals,
          [](const Column& column, const Sample& sample, std::string& out) {
            const auto& field = field_of<kField>(sample);
            if (field) detail::put_number(column, field->value(), out);
          },
          [](const Column& column, std::string_view cell, Sample& sample) {
            auto& field = field_of<kField>(sample);
            field.reset();
            std::optional<double> value;
            if (!detail::take_number(column, cell, value)) return false;
            using Unit = typename std::remove_reference_t<decltype(field)>::value_type;
            if (value) field = Unit(*value);
            return true;
          }};
}

// A column of 64 bits: written in hex, read in hex or decimal.
template <auto kField>
constexpr Column bits_column(const char* name, const char* meaning) {
  return {name,
          meaning,
          "a whole number of 64 bits, decimal or as 0x...",
          1,
          0,
          [](const Column&, const Sample& sample, std::string& out) {
            const auto& field = field_of<kField>(sample);
            if (field) detail::put_bits(*field, out);
          },
          [](const Column&, std::string_view cell, Sample& sample) {
            return detail::take_bits(cell, field_of<kField>(sample));
          }};
}

// A column of a count.
template <auto kField>
constexpr Column count_column(const char* name, const char* meaning) {
  return {name,
          meaning,
          "a whole number from 0 to 1000000",
          1,
          0,
          [](const Column&, const Sample& sample, std::string& out) {
            const auto& field = field_of<kField>(sample);
            if (field) detail::put_count(*field, out);
          },
          [](const Column&, std::string_view cell, Sample& sample) {
            return detail::take_count(cell, field_of<kField>(sample));
          }};
}

// Reads `cell` into `sample`. Errors: bad_data: "sm_clock_mhz 'x': allowed is ...".
Result<void> take_cell(const Column& column, std::string_view cell, Sample& sample);

// Which column stands where in a file's rows.
struct Layout {
  std::vector<const Column*> columns;  // null at `time` and `label`
  std::size_t time = 0;
  std::optional<std::size_t> label;
};

// The layout that `names`, a comma-separated line, gives: columns of `table` in any order, `time`
// and, unless it is empty, `label`. Errors: bad_data for unknown or doubled names, or no time.
Result<Layout> read_layout(std::string_view names, std::span<const Column> table,
                           std::string_view time, std::string_view label);

}  // namespace derate
