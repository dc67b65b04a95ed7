#include "model/fold_line.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace derate {
namespace {

constexpr double kKnots[] = {952, 1147, 1335, 1530};

std::vector<Point> up_and_down(auto&& y) {
  std::vector<Point> points;
  for (const double x : kKnots) points.push_back({x, y(x)});
  for (int i = 3; i >= 0; --i) points.push_back({kKnots[i], y(kKnots[i])});
  return points;
}

TEST(FitLine, IsExactOnALine) {
  const auto fit = fit_line(up_and_down([](double x) { return 0.02 * x + 3; }));
  EXPECT_NEAR(fit.line.slope, 0.02, 1e-12);
  EXPECT_NEAR(fit.line.intercept, 3, 1e-9);
  EXPECT_NEAR(fit.squared_error, 0, 1e-15);
}

TEST(FitLine, OneXGivesTheMean) {
  const Point points[] = {{5, 1}, {5, 3}};
  EXPECT_EQ(fit_line(points).line.slope, 0);
  EXPECT_EQ(fit_line(points).line.at(5), 2);
  EXPECT_EQ(fit_line({}).line.at(5), 0);
}

// A fold whose knee lies between the two middle knots is recovered exactly without noise.
RC_GTEST_PROP(FoldLine, RecoversAKnownFold, ()) {
  const double knee = *rc::gen::inRange(1148, 1335);
  const double high = *rc::gen::inRange(0, 50) / 1000.0;
  const double low = high + *rc::gen::inRange(5, 100) / 1000.0;
  const double level = *rc::gen::inRange(10, 90);
  const auto truth = [&](double x) { return level + (x < knee ? low : high) * (x - knee); };
  const auto fit = fit_fold_line(up_and_down(truth), kKnots);
  RC_ASSERT(fit.fold.has_value());
  RC_ASSERT(std::abs(*fit.fold - knee) < 1e-6);
  RC_ASSERT(std::abs(fit.low.slope - low) < 1e-9);
  RC_ASSERT(std::abs(fit.high.slope - high) < 1e-9);
}

RC_GTEST_PROP(FoldLine, IsConcaveContinuousAndNoWorseThanALine, (unsigned seed)) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 3);
  const auto points = up_and_down([&](double x) { return 0.03 * x + noise(random); });
  const auto fit = fit_fold_line(points, kKnots);
  RC_ASSERT(fit.low.slope >= fit.high.slope);
  RC_ASSERT(fit.squared_error <= fit_line(points).squared_error + 1e-9);
  if (fit.fold) RC_ASSERT(std::abs(fit.low.at(*fit.fold) - fit.high.at(*fit.fold)) < 1e-6);
}

RC_GTEST_PROP(FoldLine, DoesNotDependOnOrderAndScalesWithY, (unsigned seed)) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 2);
  auto points = up_and_down([&](double x) { return std::min(0.05 * x, 60.0) + noise(random); });
  const auto fit = fit_fold_line(points, kKnots);
  std::shuffle(points.begin(), points.end(), random);
  const auto shuffled = fit_fold_line(points, kKnots);
  for (Point& p : points) p.y *= 3;
  const auto tripled = fit_fold_line(points, kKnots);
  for (const double x : kKnots) {
    RC_ASSERT(std::abs(fit.at(x) - shuffled.at(x)) < 1e-6);
    RC_ASSERT(std::abs(3 * fit.at(x) - tripled.at(x)) < 1e-6);
  }
}

TEST(FoldLine, AConvexBendFallsBackToTheLine) {
  const auto fit = fit_fold_line(
      up_and_down([](double x) { return x < 1200 ? 10 : 10 + 0.1 * (x - 1200); }), kKnots);
  EXPECT_FALSE(fit.fold.has_value());
}

TEST(FoldLine, NoiseMovesTheModelLittle) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 0.5);
  double worst = 0;
  for (int i = 0; i < 200; ++i) {
    const auto truth = [](double x) { return x < 1240 ? 60 + 0.1 * (x - 1240) : 60; };
    const auto fit =
        fit_fold_line(up_and_down([&](double x) { return truth(x) + noise(random); }), kKnots);
    for (const double x : kKnots) worst = std::max(worst, std::abs(fit.at(x) - truth(x)));
  }
  EXPECT_LT(worst, 2.0);
}

}  // namespace
}  // namespace derate
