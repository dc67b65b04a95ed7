#include "attrib/fitting/least_squares.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"

namespace derate {
namespace {

// A gradient below this part of the target's length is rounding.
constexpr double kTolerance = 1e-10;

// The problem with its columns at length 1, so that one tolerance fits all, and rotated to as many
// rows as it has columns.
struct Problem {
  Eigen::MatrixXd matrix;
  Eigen::VectorXd target, lengths;
};

Problem reduced(const FitTable& table) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto rows = static_cast<Eigen::Index>(table.rows());
  const auto columns = static_cast<Eigen::Index>(table.columns);
  Eigen::MatrixXd all(rows, columns + 1);
  all.leftCols(columns) = Eigen::Map<const RowMajor>(table.cells.data(), rows, columns);
  all.col(columns) = Eigen::Map<const Eigen::VectorXd>(table.targets.data(), rows);
  Problem out;
  out.lengths = all.leftCols(columns).colwise().stableNorm().transpose();
  for (Eigen::Index j = 0; j < columns; ++j)
    if (out.lengths[j] > 0) all.col(j) /= out.lengths[j];
  const Eigen::Index kept = std::min(rows, columns + 1);
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr(all);
  const Eigen::MatrixXd upper = qr.matrixQR().topRows(kept).triangularView<Eigen::Upper>();
  out.matrix = upper.leftCols(columns);
  out.target = upper.col(columns);
  return out;
}

// Least squares over the columns in `free` alone; the others 0.
Eigen::VectorXd solve(const Problem& problem, const std::vector<bool>& free) {
  std::vector<Eigen::Index> columns;
  for (std::size_t j = 0; j < free.size(); ++j)
    if (free[j]) columns.push_back(static_cast<Eigen::Index>(j));
  Eigen::VectorXd out = Eigen::VectorXd::Zero(problem.matrix.cols());
  const Eigen::MatrixXd part = problem.matrix(Eigen::all, columns);
  const Eigen::VectorXd found = part.colPivHouseholderQr().solve(problem.target);
  out(columns) = found;
  return out;
}

// The free column that reaches 0 first on the way from `x` to `wanted`, and how far on the way.
struct Block {
  Eigen::Index column = 0;
  double step = 1;
};
std::optional<Block> first_block(const Eigen::VectorXd& x, const Eigen::VectorXd& wanted,
                                 const std::vector<bool>& free) {
  std::optional<Block> out;
  for (std::size_t j = 0; j < free.size(); ++j) {
    const auto i = static_cast<Eigen::Index>(j);
    if (!free[j] || wanted[i] > 0) continue;
    const double step = x[i] > 0 ? x[i] / (x[i] - wanted[i]) : 0;
    if (!out || step < out->step) out = Block{i, step};
  }
  return out;
}

// The solution over the free columns; those that it would make negative are freed no longer. It
// starts from a solution that is not negative, and every step holds one more column at 0.
Eigen::VectorXd solve_within(const Problem& problem, Eigen::VectorXd x, std::vector<bool>& free) {
  Eigen::VectorXd wanted = solve(problem, free);
  while (const auto block = first_block(x, wanted, free)) {
    x += block->step * (wanted - x);
    x = x.cwiseMax(0);
    x[block->column] = 0;
    free[static_cast<std::size_t>(block->column)] = false;
    wanted = solve(problem, free);
  }
  return wanted;
}

// The column whose coefficient is held at 0 and would lessen the error most if it grew.
std::optional<std::size_t> best_to_free(const Problem& problem, const Eigen::VectorXd& x,
                                        const std::vector<bool>& free) {
  const Eigen::VectorXd gain = problem.matrix.transpose() * (problem.target - problem.matrix * x);
  double best = kTolerance * problem.target.norm();
  std::optional<std::size_t> out;
  for (std::size_t j = 0; j < free.size(); ++j) {
    const double here = gain[static_cast<Eigen::Index>(j)];
    if (free[j] || !(here > best)) continue;
    best = here;
    out = j;
  }
  return out;
}

}  // namespace

void FitTable::add(std::span<const double> cells_of_row, double target) {
  CHECK(cells_of_row.size() == columns);
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!finite(target) || !std::all_of(cells_of_row.begin(), cells_of_row.end(), finite)) return;
  cells.insert(cells.end(), cells_of_row.begin(), cells_of_row.end());
  targets.push_back(target);
}

std::vector<double> fit_non_negative(const FitTable& table) {
  std::vector<double> out(table.columns, 0.0);
  if (table.rows() == 0 || table.columns == 0) return out;
  const Problem problem = reduced(table);
  std::vector<bool> free(table.columns, false);
  Eigen::VectorXd x = Eigen::VectorXd::Zero(problem.matrix.cols());
  // It ends by itself; the bound is for rounding, which may free and hold one column in turns.
  for (std::size_t round = 0; round < 10 * table.columns; ++round) {
    const auto next = best_to_free(problem, x, free);
    if (!next) break;
    free[*next] = true;
    x = solve_within(problem, std::move(x), free);
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    const auto i = static_cast<Eigen::Index>(j);
    if (problem.lengths[i] > 0) out[j] = std::max(0.0, x[i] / problem.lengths[i]);
  }
  return out;
}

}  // namespace derate
