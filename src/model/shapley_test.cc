#include "model/shapley.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace derate {
namespace {

// By the definition over all orders of arrival, for a game that no formula made.
TEST(Shapley, IsTheMeanOverAllOrders) {
  const double value[8] = {0, 3, 5, 11, 2, 4, 6, 20};
  const auto own = shapley(3, [&](unsigned mask) { return value[mask]; });
  std::vector<std::size_t> order = {0, 1, 2};
  std::vector<double> sum(3, 0);
  do {
    unsigned mask = 0;
    for (const std::size_t i : order) {
      sum[i] += value[mask | 1U << i] - value[mask];
      mask |= 1U << i;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(own[i], sum[i] / 6, 1e-12);
}

}  // namespace
}  // namespace derate
