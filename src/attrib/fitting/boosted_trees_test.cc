#include "attrib/fitting/boosted_trees.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace derate {
namespace {

constexpr std::size_t kColumns = 4;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Few distinct values, so that many rows tie; the last column is the same everywhere.
FitTable any_table(std::mt19937_64& random) {
  FitTable table{.columns = kColumns};
  const std::size_t rows = random() % 80, levels = 1 + random() % 20;
  const auto cell = [&] { return static_cast<double>(random() % levels) / 7; };
  for (std::size_t i = 0; i < rows; ++i) {
    const std::vector<double> row{cell(), cell(), cell(), 0.5};
    table.add(row, static_cast<double>(random() % 1000) - 200 + 300 * row[1] * row[2]);
  }
  return table;
}

BoostOptions any_options(std::mt19937_64& random) {
  return {.rounds = random() % 12,
          .depth = random() % 5,
          .shrinkage = static_cast<double>(1 + random() % 10) / 10,
          .least_rows = 1 + random() % 6};
}

double squared_error(const BoostedTrees& model, const FitTable& table) {
  double out = 0;
  for (std::size_t i = 0; i < table.rows(); ++i)
    out += std::pow(table.targets[i] - predict(model, table.row(i)), 2);
  return out;
}

// 80 squares of up to 2000 each round to about 1e-7 of a million.
RC_GTEST_PROP(BoostedTreesProperty, NoTreeMakesTheErrorLarger, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const FitTable table = any_table(random);
  BoostedTrees model = fit_boosted_trees(table, any_options(random));
  double error = squared_error(model, table);
  while (!model.trees.empty()) {
    model.trees.pop_back();
    const double before = squared_error(model, table);
    RC_ASSERT(error <= before + 1e-6);
    error = before;
  }
}

RC_GTEST_PROP(BoostedTreesProperty, LeavesHaveRowsEnoughAndTreesAreShallow, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const FitTable table = any_table(random);
  const BoostOptions options = any_options(random);
  for (const RegressionTree& tree : fit_boosted_trees(table, options).trees) {
    std::vector<std::size_t> rows(tree.size(), 0);
    for (std::size_t i = 0; i < table.rows(); ++i) {
      std::size_t at = 0, splits = 0;
      for (; tree[at].left; ++splits) {
        RC_ASSERT(tree[at].column != kColumns - 1);  // where all are the same nothing can be told
        at = *tree[at].left + (table.row(i)[tree[at].column] <= tree[at].threshold ? 0 : 1);
      }
      RC_ASSERT(splits <= options.depth);
      ++rows[at];
    }
    for (std::size_t i = 1; i < tree.size(); ++i)
      if (!tree[i].left) RC_ASSERT(rows[i] >= options.least_rows);
  }
}

RC_GTEST_PROP(BoostedTreesProperty, AnswersAreFiniteAndTheSameEachTime, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const FitTable table = any_table(random);
  const BoostOptions options = any_options(random);
  const BoostedTrees one = fit_boosted_trees(table, options);
  const BoostedTrees other = fit_boosted_trees(table, options);
  for (const double odd : {std::nan(""), kInfinite, -kInfinite, 1e308, 0.0, 0.3}) {
    const std::vector<double> row{odd, 0.5, odd, odd};
    RC_ASSERT(std::isfinite(predict(one, row)));
    RC_ASSERT(predict(one, row) == predict(other, row));
  }
}

// A step in one column among others that say nothing: each round leaves 0.9 of the error, 150
// rounds leave 0.9^150 < 2e-7 of a step of 200 W; also half-way between the rows beside the step.
RC_GTEST_PROP(BoostedTreesProperty, FitsAStep, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  const auto step = static_cast<double>(5 + random() % 90);
  FitTable table{.columns = kColumns};
  for (int i = 0; i < 100; ++i)
    table.add(std::vector{static_cast<double>(random() % 10), static_cast<double>(i), 1.0, 0.0},
              i < step ? 50 : 250);
  const BoostedTrees model = fit_boosted_trees(table);
  for (const double x : {-1e9, 0.0, step - 1, step - 0.51})
    RC_ASSERT(std::abs(predict(model, std::vector{3.0, x, 1.0, 0.0}) - 50) < 1e-3);
  for (const double x : {step - 0.49, step, 99.0, 1e9})
    RC_ASSERT(std::abs(predict(model, std::vector{3.0, x, 1.0, 0.0}) - 250) < 1e-3);
}

TEST(BoostedTrees, SeesAnInteraction) {
  FitTable table{.columns = 2};
  for (int i = 0; i < 400; ++i) {
    const double a = i % 20, b = i / 20;
    table.add(std::vector{a, b}, a >= 10 && b >= 10 ? 100 : 0);
  }
  const BoostedTrees model = fit_boosted_trees(table);
  EXPECT_NEAR(predict(model, std::vector{15.0, 15.0}), 100, 0.1);
  EXPECT_NEAR(predict(model, std::vector{15.0, 5.0}), 0, 0.1);
  EXPECT_NEAR(predict(model, std::vector{5.0, 15.0}), 0, 0.1);
}

TEST(BoostedTrees, SayTheMeanWhereNothingCanBeTold) {
  FitTable table{.columns = 1};
  EXPECT_EQ(predict(fit_boosted_trees(table), std::vector{1.0}), 0);
  for (const double target : {10.0, 20.0, 60.0}) table.add(std::vector{1.0}, target);
  EXPECT_NEAR(predict(fit_boosted_trees(table), std::vector{7.0}), 30, 1e-9);
}

}  // namespace
}  // namespace derate
