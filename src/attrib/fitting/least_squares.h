// Least squares where no coefficient may be negative.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace derate {

// Numbers to fit on: rows of `columns` cells each, and what each row should give.
struct FitTable {
  std::size_t columns = 0;
  std::vector<double> cells;  // row after row
  std::vector<double> targets;

  std::size_t rows() const { return targets.size(); }
  std::span<const double> row(std::size_t i) const {
    return std::span(cells).subspan(i * columns, columns);
  }
  // One of other than `columns` cells is a programmer's error. One that is not finite is left out.
  void add(std::span<const double> cells_of_row, double target);
};

// The non-negative coefficients, one a column, of the least squared error: the active-set method of
// Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23). Columns that say nothing,
// or nothing more than others, get 0; so does everything without a row.
std::vector<double> fit_non_negative(const FitTable& table);

}  // namespace derate
