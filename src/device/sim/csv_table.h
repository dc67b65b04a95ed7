// Tables of measurements in CSV files.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// A CSV file with a header line: rows of cells, comments (#) and blank lines left out. The cells
// are parts of the text that was parsed.
struct Csv {
  struct Row {
    std::size_t line;
    std::vector<std::string_view> cells;
  };
  std::vector<std::string_view> header;
  std::size_t header_line = 1;
  std::vector<Row> rows;
};

// At most 64 MiB, 100,000 rows and 1,025 columns; no quotes. Errors: bad_data naming FILE:LINE.
Result<Csv> parse_csv(std::string_view text, std::string_view file);
// Its place in each row. Errors: bad_data naming FILE:LINE.
Result<std::size_t> column(const Csv& csv, std::string_view name, std::string_view file);
// The number in a cell. Errors: bad_data naming FILE:LINE, the column, the value and the range.
Result<double> number_in(const Csv& csv, const Csv::Row& row, std::size_t at, double least,
                         double most, std::string_view file);
// bad_data: "FILE:LINE: COLUMN 'CELL': wanted WANTED".
Error cell_error(std::string_view file, std::size_t line, std::string_view column,
                 std::string_view cell, const char* wanted);
// bad_data: "FILE:LINE: too many WHAT: allowed are ALLOWED".
Error too_many(std::string_view file, std::size_t line, const char* what, std::size_t allowed);

}  // namespace derate
