#include "attrib/fitting/boosted_trees.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace derate {
namespace {

struct Sum {
  double total = 0;
  std::size_t rows = 0;

  void add(double value) { total += value, ++rows; }
  // What the squared error loses when these rows are given their mean.
  double worth() const { return rows > 0 ? total * total / static_cast<double>(rows) : 0; }
  friend Sum operator-(Sum a, Sum b) { return {a.total - b.total, a.rows - b.rows}; }
};

struct Cut {
  double gain = 0;
  std::size_t column = 0;
  double threshold = 0;
};

// One tree while it grows, a level at a time: each row knows its leaf.
struct Growth {
  RegressionTree nodes = RegressionTree(1);
  std::vector<std::size_t> leaf_of;  // by row
  std::vector<Sum> sums;             // by node, of the remainders in it
};

// The rows in ascending order of each column; ties by row.
std::vector<std::vector<std::size_t>> sorted_columns(const FitTable& table) {
  std::vector<std::vector<std::size_t>> out(table.columns);
  for (std::size_t column = 0; column < table.columns; ++column) {
    out[column].resize(table.rows());
    std::iota(out[column].begin(), out[column].end(), std::size_t{0});
    std::stable_sort(out[column].begin(), out[column].end(), [&](std::size_t a, std::size_t b) {
      return table.row(a)[column] < table.row(b)[column];
    });
  }
  return out;
}

// Between two neighbours in order, and less than the upper one whatever rounding does.
double threshold_between(double lower, double upper) {
  const double middle = lower / 2 + upper / 2;
  return middle > lower && middle < upper ? middle : lower;
}

// Looks at every threshold in a column, for all leaves from `first` on in one pass.
void look_at_column(const FitTable& table, std::span<const std::size_t> order, std::size_t column,
                    std::span<const double> remainders, const Growth& growth, std::size_t first,
                    std::size_t least_rows, std::vector<Cut>& best) {
  std::vector<Sum> below(growth.nodes.size());
  std::vector<double> last(growth.nodes.size(), 0);
  for (const std::size_t row : order) {
    const std::size_t leaf = growth.leaf_of[row];
    if (leaf < first) continue;
    const double here = table.row(row)[column];
    const Sum left = below[leaf], right = growth.sums[leaf] - left;
    if (left.rows >= least_rows && right.rows >= least_rows && here > last[leaf]) {
      const double gain = left.worth() + right.worth() - growth.sums[leaf].worth();
      if (gain > best[leaf].gain) best[leaf] = {gain, column, threshold_between(last[leaf], here)};
    }
    below[leaf].add(remainders[row]);
    last[leaf] = here;
  }
}

// Splits the leaves from `first` on where a split helps.
void grow_level(const FitTable& table, std::span<const std::vector<std::size_t>> orders,
                std::span<const double> remainders, std::size_t first, std::size_t least_rows,
                Growth& growth) {
  const std::size_t end = growth.nodes.size();
  std::vector<Cut> best(end);
  for (std::size_t column = 0; column < table.columns; ++column)
    look_at_column(table, orders[column], column, remainders, growth, first, least_rows, best);
  for (std::size_t leaf = first; leaf < end; ++leaf) {
    if (!(best[leaf].gain > 0)) continue;
    growth.nodes[leaf].left = growth.nodes.size();
    growth.nodes[leaf].column = best[leaf].column;
    growth.nodes[leaf].threshold = best[leaf].threshold;
    growth.nodes.resize(growth.nodes.size() + 2);
  }
  growth.sums.resize(growth.nodes.size());
  for (std::size_t row = 0; row < table.rows(); ++row) {
    std::size_t& leaf = growth.leaf_of[row];
    const TreeNode& node = growth.nodes[leaf];
    if (!node.left) continue;
    leaf = *node.left + (table.row(row)[node.column] <= node.threshold ? 0 : 1);
    growth.sums[leaf].add(remainders[row]);
  }
}

// A tree for the remainders, which it lessens by what it says of each row.
RegressionTree fit_tree(const FitTable& table, std::span<const std::vector<std::size_t>> orders,
                        const BoostOptions& options, std::vector<double>& remainders) {
  Growth growth{.leaf_of = std::vector<std::size_t>(table.rows(), 0), .sums = {Sum{}}};
  for (const double remainder : remainders) growth.sums[0].add(remainder);
  std::size_t first = 0;
  for (std::size_t level = 0; level < options.depth; ++level) {
    const std::size_t next = growth.nodes.size();
    grow_level(table, orders, remainders, first, options.least_rows, growth);
    first = next;
  }
  for (std::size_t i = 0; i < growth.nodes.size(); ++i) {
    const Sum& sum = growth.sums[i];
    if (!growth.nodes[i].left && sum.rows > 0)
      growth.nodes[i].value = options.shrinkage * sum.total / static_cast<double>(sum.rows);
  }
  for (std::size_t row = 0; row < remainders.size(); ++row)
    remainders[row] -= growth.nodes[growth.leaf_of[row]].value;
  return std::move(growth.nodes);
}

double value_in(const RegressionTree& tree, std::span<const double> row) {
  std::size_t at = 0;
  while (const auto left = tree[at].left)
    at = *left + (row[tree[at].column] <= tree[at].threshold ? 0 : 1);
  return tree[at].value;
}

}  // namespace

BoostedTrees fit_boosted_trees(const FitTable& table, const BoostOptions& options) {
  CHECK(options.shrinkage > 0 && options.shrinkage <= 1 && options.least_rows >= 1);
  BoostedTrees out;
  if (table.rows() == 0) return out;
  out.mean = std::accumulate(table.targets.begin(), table.targets.end(), 0.0) /
             static_cast<double>(table.rows());
  std::vector<double> remainders = table.targets;
  for (double& remainder : remainders) remainder -= out.mean;
  const auto orders = sorted_columns(table);
  for (std::size_t round = 0; round < options.rounds; ++round)
    out.trees.push_back(fit_tree(table, orders, options, remainders));
  return out;
}

double predict(const BoostedTrees& model, std::span<const double> row) {
  double out = model.mean;
  for (const RegressionTree& tree : model.trees) out += value_in(tree, row);
  return out;
}

}  // namespace derate
