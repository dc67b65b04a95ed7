#include "tune/sizes/size_changes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace derate {
namespace {

SizeProblem two_sizes() {
  return {.batch_sizes = {16, 32}, .default_size = 32, .max_epochs = 1000};
}

Trial reached(double epochs, double epoch_cost) {
  return {.batch_size = 32,
          .state = TrialState::reached,
          .epochs = std::round(epochs),
          .cost = std::round(epochs) * epoch_cost};
}

// Runs of one batch size; from `at` on they take `factor` times the epochs.
std::vector<Trial> runs(int count, int at, double factor, double sd, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<> normal(0, sd);
  std::vector<Trial> out;
  for (int i = 0; i < count; ++i)
    out.push_back(reached(40 * (i < at ? 1 : factor) * std::exp(normal(random)), 10));
  return out;
}

// Half or twice the epochs, of runs that vary by 10 %: seen after four runs, and where it was, but
// for one in fifty by chance. A change that comes sooner makes the variance look larger, and takes
// longer to be seen.
TEST(SizeChanges, AreSeenWhereTheyAre) {
  int all = 0, seen = 0;
  for (const int at : {12, 22, 39})
    for (const double factor : {0.5, 2.0})
      for (std::uint64_t seed = 1; seed <= 100; ++seed, ++all) {
        const auto changes = find_changes(two_sizes(), runs(at + 4, at, factor, 0.1, seed));
        const bool there = !changes.empty() && changes.back().epochs && !changes.back().cost;
        seen += there && std::abs(static_cast<int>(changes.back().first) - at) <= 2 ? 1 : 0;
      }
  EXPECT_GE(seen, all - all / 50);
}

// 200 jobs of 100 runs that do not change: with 5 standard errors hardly one is thought to have.
// At 3 a third of them would; the variance is estimated from few runs at first.
TEST(SizeChanges, AreRareWhereThereAreNone) {
  int seen = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed)
    seen += find_changes(two_sizes(), runs(100, 100, 1, 0.15, seed)).empty() ? 0 : 1;
  EXPECT_LE(seen, 10);
}

// A run that is stopped on its way tells that the job takes longer now.
TEST(SizeChanges, StoppedRunsTellOfThem) {
  auto trials = runs(10, 10, 1, 0.05, 1);
  EXPECT_TRUE(find_changes(two_sizes(), trials).empty());
  for (int i = 0; i < 3; ++i) {
    trials.push_back(reached(79, 10));
    trials.back().state = TrialState::stopped;
  }
  const auto changes = find_changes(two_sizes(), trials);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].first, 10u);
}

// What an epoch costs may change alone.
TEST(SizeChanges, CostsHaveTheirOwn) {
  std::vector<Trial> trials;
  for (int i = 0; i < 12; ++i) trials.push_back(reached(20, i < 8 ? 10 : 15));
  const auto changes = find_changes(two_sizes(), trials);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0], (SizeChange{8, false, true}));
}

}  // namespace
}  // namespace derate
