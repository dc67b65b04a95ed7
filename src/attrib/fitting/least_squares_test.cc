#include "attrib/fitting/least_squares.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace derate {
namespace {

constexpr std::size_t kTestColumns = 6;

double dot(std::span<const double> a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Cells in 0..1, some columns much larger or smaller than others, some empty, some the same.
FitTable any_rows(std::mt19937_64& random, std::size_t rows) {
  std::uniform_real_distribution<double> share(0, 1);
  std::vector<double> sizes;
  for (std::size_t j = 0; j < kTestColumns; ++j)
    sizes.push_back(random() % 6 == 0 ? 0 : std::pow(10, 8 * share(random) - 4));
  const bool twins = random() % 3 == 0;
  FitTable table{.columns = kTestColumns};
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<double> row;
    for (const double size : sizes) row.push_back(size * share(random));
    if (twins) row[4] = row[1];
    table.add(row, 1000 * share(random) - 300);
  }
  return table;
}

// Optimal means: no coefficient is negative, moving a positive one either way makes it worse, and
// so does raising one that is 0 (Karush, Kuhn and Tucker). The slack is for the rounding of sums
// of up to 60 products of 700 with a column's length.
RC_GTEST_PROP(NonNegative, FindsTheOptimum, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const FitTable table = any_rows(random, 1 + random() % 60);
  const std::vector<double> found = fit_non_negative(table);
  RC_ASSERT(found.size() == kTestColumns);
  for (std::size_t j = 0; j < kTestColumns; ++j) {
    double gain = 0, length = 0;
    for (std::size_t i = 0; i < table.rows(); ++i) {
      const double left = table.targets[i] - dot(table.row(i), found);
      gain += table.row(i)[j] * left;
      length += table.row(i)[j] * table.row(i)[j];
    }
    const double slack = 1e-5 * std::sqrt(length);
    RC_ASSERT((std::isfinite(found[j]) && found[j] >= 0));
    RC_ASSERT(gain <= slack);
    if (found[j] > 0) RC_ASSERT(gain >= -slack);
    if (length == 0) RC_ASSERT(found[j] == 0);
  }
}

// Random shares of 40 rows are well conditioned; rounding of QR is far below a millionth.
RC_GTEST_PROP(NonNegative, FindsTheCoefficientsThatMadeTheData, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0, 1);
  std::vector<double> truth;
  for (std::size_t j = 0; j < kTestColumns; ++j)
    truth.push_back(random() % 3 == 0 ? 0 : 500 * share(random));
  FitTable table{.columns = kTestColumns};
  for (int i = 0; i < 40; ++i) {
    std::vector<double> row;
    for (std::size_t j = 0; j < kTestColumns; ++j) row.push_back(share(random));
    table.add(row, dot(row, truth));
  }
  const std::vector<double> found = fit_non_negative(table);
  for (std::size_t j = 0; j < kTestColumns; ++j) RC_ASSERT(std::abs(found[j] - truth[j]) < 1e-6);
}

TEST(NonNegativeFit, KnowsNothingWithoutRows) {
  FitTable table{.columns = 3};
  table.add(std::vector{1.0, std::numeric_limits<double>::quiet_NaN(), 0.0}, 5);
  table.add(std::vector{1.0, 1.0, 0.0}, std::numeric_limits<double>::infinity());
  EXPECT_EQ(table.rows(), 0u);
  EXPECT_EQ(fit_non_negative(table), (std::vector<double>{0, 0, 0}));
}

TEST(NonNegativeFit, HoldsAtZeroWhatWouldBeNegative) {
  FitTable table{.columns = 2};  // unbounded: 3 and -1
  table.add(std::vector{1.0, 0.0}, 3);
  table.add(std::vector{1.0, 1.0}, 2);
  const std::vector<double> found = fit_non_negative(table);
  EXPECT_NEAR(found[0], 2.5, 1e-12);
  EXPECT_EQ(found[1], 0);
}

}  // namespace
}  // namespace derate
