#include "terminal/plot.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

TEST(Plot, HasItsAxisAtTheLeftAndGapsWhereNothingIsKnown) {
  const Series series = {100.0, 50.0, std::nullopt, 0.0};
  const Plot plot{.series = series, .high = 100, .label = [](double value) {
                    return fmt::format("{:.0f}", value);
                  }};
  EXPECT_EQ(frame_text(plot_lines(plot, 10, 2, {.utf8 = false})), " 100 |#\n   0 |## _\n");
  EXPECT_EQ(frame_text(plot_lines(plot, 10, 2, {.utf8 = true})), " 100 │█\n   0 │██ ▁\n");
}

TEST(Plot, AxesEndAtRoundNumbers) {
  EXPECT_EQ(round_above(0.34), 0.4);
  EXPECT_EQ(round_above(693), 800);
  EXPECT_EQ(round_above(201), 250);
  EXPECT_EQ(round_above(200), 200);
  EXPECT_EQ(round_above(0), 1);
}

RC_GTEST_PROP(PlotProperty, FitsWhateverItIsOf, ()) {
  Series series;
  for (const double value : *rc::gen::container<std::vector<double>>(rc::gen::arbitrary<double>()))
    series.push_back(value);
  const auto width = *rc::gen::inRange<std::size_t>(3, 100);
  const auto height = *rc::gen::inRange<std::size_t>(1, 20);
  const Plot plot{.series = series,
                  .low = *rc::gen::arbitrary<double>(),
                  .high = *rc::gen::arbitrary<double>(),
                  .label = [](double value) { return fmt::format("{:g}", value); }};
  const Frame frame = plot_lines(plot, width, height, {.utf8 = *rc::gen::arbitrary<bool>()});
  RC_ASSERT(frame.size() == height);
  for (const Line& line : frame) RC_ASSERT(line_width(line) == width);
}

RC_GTEST_PROP(PlotProperty, ARoundNumberIsNotBelow, ()) {
  const double value = *rc::gen::inRange(1, 1'000'000) / 1000.0;
  const double round = round_above(value);
  RC_ASSERT(round >= value * (1 - 1e-6) && round <= value * 1.34 * (1 + 1e-6));
}

}  // namespace
}  // namespace derate
