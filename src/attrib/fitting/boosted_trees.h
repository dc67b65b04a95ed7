// Regression trees, each fitted to what the ones before leave (Friedman 2001, "Greedy function
// approximation: a gradient boosting machine", for squared error). Exact splits, no randomness: the
// same table gives the same trees.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "attrib/fitting/least_squares.h"

namespace derate {

struct TreeNode {
  // Rows whose cell in `column` is at most `threshold` go to the left child, all others, NaN too,
  // to the right one, which comes next in the tree's nodes. Empty: a leaf.
  std::optional<std::size_t> left;
  std::size_t column = 0;
  double threshold = 0;
  double value = 0;  // what a leaf adds
};

using RegressionTree = std::vector<TreeNode>;  // the root first

struct BoostedTrees {
  double mean = 0;  // of the targets: where the trees start from
  std::vector<RegressionTree> trees;
};

struct BoostOptions {
  std::size_t rounds = 150;    // trees
  std::size_t depth = 3;       // splits from the root to a leaf at most
  double shrinkage = 0.1;      // the part of the remainder that a tree takes away, in (0, 1]
  std::size_t least_rows = 5;  // in a leaf, at least 1
};

// Each tree lessens the squared error over the table or leaves it. Without a row: 0 everywhere.
// Cost: O(rounds * depth * rows * columns). Options out of range are a programmer's error.
BoostedTrees fit_boosted_trees(const FitTable& table, const BoostOptions& options = {});

// Finite for every row. One with fewer cells than the table had columns is a programmer's error.
double predict(const BoostedTrees& model, std::span<const double> row);

}  // namespace derate
