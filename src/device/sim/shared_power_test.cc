#include "device/sim/shared_power.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "model/shapley.h"

namespace derate {
namespace {

std::vector<double> any_watts() {
  return *rc::gen::container<std::vector<double>>(static_cast<std::size_t>(*rc::gen::inRange(1, 7)),
                                                  rc::gen::cast<double>(rc::gen::inRange(0, 120)));
}

double drawn(const std::vector<double>& alone, unsigned mask) {
  double sum = 0;
  for (std::size_t i = 0; i < alone.size(); ++i)
    if ((mask >> i & 1U) != 0) sum += alone[i];
  return together({}, sum);
}

std::vector<double> shares(const std::vector<double>& alone) {
  return shapley(alone.size(), [&](unsigned mask) { return drawn(alone, mask); });
}

RC_GTEST_PROP(Shapley, AddsUpToWhatAllDraw, ()) {
  const auto alone = any_watts();
  const auto own = shares(alone);
  RC_ASSERT(std::abs(std::accumulate(own.begin(), own.end(), 0.0) -
                     drawn(alone, (1U << alone.size()) - 1)) < 1e-9);
}

RC_GTEST_PROP(Shapley, EqualsGetTheSameAndNothingGetsNothing, ()) {
  auto alone = any_watts();
  alone.push_back(alone.front());
  alone.push_back(0);
  const auto own = shares(alone);
  RC_ASSERT(std::abs(own.front() - own[own.size() - 2]) < 1e-9);
  RC_ASSERT(std::abs(own.back()) < 1e-9);
}

// F/n + d - c d sum(d): the closed form for a quadratic loss (the study's section 3.6).
TEST(Shapley, MeetsTheClosedFormOfAQuadratic) {
  const std::vector<double> alone = {40, 90, 10, 0};
  const SharedPower quadratic{.loss = 2e-4, .wake = 0};
  const auto own = shapley(4, [&](unsigned mask) {
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i)
      if ((mask >> i & 1U) != 0) sum += alone[i];
    return together(quadratic, sum);
  });
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(own[i], alone[i] * (1 - 2e-4 * 140), 1e-9);
}

}  // namespace
}  // namespace derate
