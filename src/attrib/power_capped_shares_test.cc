#include "attrib/power_capped_shares.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace derate {
namespace {

struct Game {
  std::vector<double> wants;
  double limit = 0;
};

Game any_game(std::size_t most) {
  Game out;
  for (auto left = *rc::gen::inRange<std::size_t>(0, most + 1); left > 0; --left)
    out.wants.push_back(*rc::gen::inRange(0, 400));
  out.limit = *rc::gen::inRange(0, 1200);
  return out;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// What each adds when they come one after another, the mean over all orders.
std::vector<double> by_orders(const Game& game) {
  std::vector<std::size_t> order(game.wants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> out(game.wants.size(), 0);
  double orders = 0;
  do {
    double want = 0;
    for (const std::size_t i : order) {
      const double before = std::min(want, game.limit);
      want += game.wants[i];
      out[i] += std::min(want, game.limit) - before;
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  for (double& share : out) share /= orders;
  return out;
}

RC_GTEST_PROP(LimitSharesProperty, AreTheMeanOverAllOrders, ()) {
  const Game game = any_game(5);
  const std::vector<double> shares = shares_of_a_limit(game.wants, game.limit);
  const std::vector<double> wanted = by_orders(game);
  RC_ASSERT(shares.size() == wanted.size());
  for (std::size_t i = 0; i < shares.size(); ++i)
    RC_ASSERT(std::abs(shares[i] - wanted[i]) < 1e-9 * 1200);
}

RC_GTEST_PROP(LimitSharesProperty, AddUpToWhatIsDrawn, ()) {
  const Game game = any_game(14);
  const std::vector<double> shares = shares_of_a_limit(game.wants, game.limit);
  RC_ASSERT(std::abs(sum(shares) - std::min(sum(game.wants), game.limit)) < 1e-6);
  for (std::size_t i = 0; i < shares.size(); ++i)
    RC_ASSERT((shares[i] >= 0 && shares[i] <= game.wants[i] + 1e-9));
}

RC_GTEST_PROP(LimitSharesProperty, AreTheSameForTheSameWantAndNoneForNone, ()) {
  Game game = any_game(12);
  const double want = *rc::gen::inRange(1, 400);
  game.wants.insert(game.wants.begin(), {want, 0});
  game.wants.push_back(want);
  const std::vector<double> shares = shares_of_a_limit(game.wants, game.limit);
  RC_ASSERT(std::abs(shares.front() - shares.back()) < 1e-6);
  RC_ASSERT(shares[1] == 0);
}

RC_GTEST_PROP(LimitSharesProperty, WhoWantsMoreGetsNoLess, ()) {
  const Game game = any_game(12);
  const std::vector<double> shares = shares_of_a_limit(game.wants, game.limit);
  for (std::size_t i = 0; i < shares.size(); ++i)
    for (std::size_t j = 0; j < shares.size(); ++j)
      if (game.wants[i] > game.wants[j]) RC_ASSERT(shares[i] >= shares[j] - 1e-9);
}

TEST(LimitShares, AlmostProportionalForMany) {
  // 10 are computed, 11 approximated: another tenant of a millionth makes no jump.
  std::vector<double> wants;
  for (int i = 1; i <= 10; ++i) wants.push_back(20.0 * i);
  const std::vector<double> exact = shares_of_a_limit(wants, 600);
  wants.push_back(1e-6);
  const std::vector<double> near = shares_of_a_limit(wants, 600);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(near[i], exact[i], 0.2 * exact[i]);
}

}  // namespace
}  // namespace derate
