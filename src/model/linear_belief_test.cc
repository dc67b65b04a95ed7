#include "model/linear_belief.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace derate {
namespace {

LinearBelief unknown(std::size_t size) {
  LinearBelief out(size);
  for (std::size_t i = 0; i < size; ++i) out.set_covariance(i, i, 1);
  return out;
}

// Many readings of a few coefficients find them, and know how well.
TEST(LinearBelief, FindsTheCoefficients) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> gauss(0, 1);
  LinearBelief belief = unknown(3);
  const LinearBelief::Row truth{0.5, -1, 0.25};
  for (int i = 0; i < 3000; ++i) {
    const LinearBelief::Row row{gauss(random), gauss(random), gauss(random)};
    double value = 0.1 * gauss(random);
    for (std::size_t k = 0; k < 3; ++k) value += row[k] * truth[k];
    belief.observe(row, value, 0.01);
  }
  for (std::size_t k = 0; k < 3; ++k) {
    LinearBelief::Row one{};
    one[k] = 1;
    EXPECT_NEAR(belief.project(one).mean, truth[k], 4 * belief.project(one).sd);
    EXPECT_NEAR(belief.project(one).sd, 0.1 / std::sqrt(3000), 3e-4);
  }
}

// In any order the same is known, and no reading makes anything less sure.
RC_GTEST_PROP(LinearBeliefProperty, OrderDoesNotMatter, (std::uint64_t seed)) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> any(-1, 1);
  struct Reading {
    LinearBelief::Row row;
    double value, variance;
  };
  std::vector<Reading> readings;
  for (int i = 0; i < 8; ++i)
    readings.push_back({{any(random), any(random), any(random), any(random)},
                        any(random),
                        0.01 + std::abs(any(random))});
  LinearBelief forward = unknown(4), backward = unknown(4);
  const LinearBelief::Row at{any(random), any(random), any(random), any(random)};
  double sd = forward.project(at).sd;
  for (const Reading& r : readings) {
    forward.observe(r.row, r.value, r.variance);
    RC_ASSERT(forward.project(at).sd <= sd + 1e-12);
    sd = forward.project(at).sd;
  }
  for (auto r = readings.rbegin(); r != readings.rend(); ++r)
    backward.observe(r->row, r->value, r->variance);
  RC_ASSERT(std::abs(forward.project(at).mean - backward.project(at).mean) < 1e-9);
  RC_ASSERT(std::abs(forward.project(at).sd - backward.project(at).sd) < 1e-9);
}

// A sum of coefficients is what it was before, as the other coefficients are.
RC_GTEST_PROP(LinearBelief, ACoefficientGrowsByAnother, ()) {
  const auto number = [] { return *rc::gen::inRange(-100, 101) / 50.0; };
  LinearBelief belief = unknown(3);
  belief.observe({number(), number(), number()}, number(), 0.5);
  const std::size_t added = belief.append(0.7);
  belief.observe({number(), number(), number(), 1}, number(), 0.3);
  const double factor = number();
  const Belief sum = belief.project({0, 1, 0, factor}), other = belief.project({1, 0, 1, 0});
  belief.add(1, added, factor);
  RC_ASSERT(std::abs(belief.project({0, 1}).mean - sum.mean) < 1e-9);
  RC_ASSERT(std::abs(belief.project({0, 1}).sd - sum.sd) < 1e-9);
  RC_ASSERT(std::abs(belief.project({1, 0, 1, 0}).sd - other.sd) < 1e-9);
}

}  // namespace
}  // namespace derate
