#include "reference.h"

#include <gtest/gtest.h>

#include "random.h"

namespace derate::bench_cuda {
namespace {

// Hull, Options, Futures, and Other Derivatives, example 15.6: 4.76 and 0.81.
TEST(Reference, BlackScholesAsInHull) {
  const OptionPrices prices = black_scholes(42, 40, 0.5, 0.1, 0.2);
  EXPECT_NEAR(prices.call, 4.76, 0.005);
  EXPECT_NEAR(prices.put, 0.81, 0.005);
}

TEST(Reference, WalshOfFour) {
  const std::vector<float> input = {1, 0, 1, 5};
  EXPECT_EQ(walsh_at(input, 0), 7);
  EXPECT_EQ(walsh_at(input, 1), 1 - 0 + 1 - 5);
  EXPECT_EQ(walsh_at(input, 2), 1 + 0 - 1 - 5);
  EXPECT_EQ(walsh_at(input, 3), 1 - 0 - 1 + 5);
}

TEST(Reference, ConvolutionSpreadsAPointAsTheWeights) {
  std::vector<float> values(2 * 8 * 8, 0.0f);
  values[2 * (3 * 8 + 0) + 1] = 1;  // channel 1, row 3, column 0
  const Image image{values, 8, 2};
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto at = [&](int y, int x) { return convolution_at(image, 1, weights, 3, y, x); };
  EXPECT_EQ(at(3, 0), 5);
  EXPECT_EQ(at(2, 0), 2);
  EXPECT_EQ(at(4, 1), 9);
  EXPECT_EQ(at(3, 7), 4);  // around the edge
  EXPECT_EQ(at(3, 2), 0);
  EXPECT_EQ(convolution_at(image, 0, weights, 3, 3, 0), 0);
}

TEST(Reference, Dot) {
  EXPECT_EQ(dot(
                3, [](auto k) { return double(k + 1); }, [](auto k) { return double(k); }),
            8);
}

// The first outputs of Vigna's splitmix64.c for the state 0.
TEST(Random, IsSplitMix64) {
  EXPECT_EQ(random_bits(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(random_bits(0, 1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(random_bits(0, 2), 0x06c45d188009454fu);
}

TEST(Random, StaysWithinItsBounds) {
  const Uniform values{1, -1, 3};
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    EXPECT_GE(values(i), -1);
    EXPECT_LT(values(i), 3);
    sum += values(i);
  }
  // Deviation of the mean: 4 / sqrt(12 * 10000) = 0.012; seven of them.
  EXPECT_NEAR(sum / 10000, 1, 0.08);
}

TEST(Random, MixedHoldsItsShareOfTheValues) {
  const Uniform values{1, 2, 3};
  for (const double share : {0.0, 0.25, 1.0}) {
    const auto mix = mixed(values, share, -1);
    int random = 0;
    for (int i = 0; i < 10000; ++i) {
      EXPECT_TRUE(mix(i) == values(i) || mix(i) == -1);
      random += mix(i) == values(i);
    }
    // Deviation at a quarter: sqrt(10000 / 4 * 3 / 4) = 43; seven of them. Ends are exact.
    EXPECT_NEAR(random, 10000 * share, share * (1 - share) * 1600);
  }
}

TEST(Random, MixedKeepsWhatASmallerShareHad) {
  const Uniform values{1, 2, 3};
  for (int i = 0; i < 1000; ++i)
    if (mixed(values, 0.25)(i) != 0) {
      EXPECT_EQ(mixed(values, 0.5)(i), values(i));
    }
}

}  // namespace
}  // namespace derate::bench_cuda
