#include "terminal/frame.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/printing.h"
#include "terminal/text_width.h"

namespace derate {
namespace {

TEST(TextWidth, WideCharactersTakeTwoColumnsAndMarksNone) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("机器"), 4u);
  EXPECT_EQ(display_width("e\u0301"), 1u);
  EXPECT_EQ(display_width("─█▁…°"), 5u);
}

TEST(TextWidth, ACutIsMarkedAndSplitsNoCharacter) {
  EXPECT_EQ(cut_text("abcdef", 4), "abc…");
  EXPECT_EQ(cut_text("abcd", 4), "abcd");
  EXPECT_EQ(cut_text("机器学习", 4), "机…");
  EXPECT_EQ(cut_text("ab", 0), "");
}

RC_GTEST_PROP(TextWidth, FilledTextHasItsWidth, (const std::string& text)) {
  const auto width = *rc::gen::inRange<std::size_t>(0, 40);
  const Look look{80, 24, *rc::gen::arbitrary<bool>()};
  const std::string out = fill_text(frame_text_of(text, look), width, true, look);
  RC_ASSERT(display_width(out) == width);
}

RC_GTEST_PROP(FitColumns, FitIntoTheWidthAndKeepTheFirstRank, ()) {
  std::vector<FrameColumn> columns(*rc::gen::inRange<std::size_t>(1, 12));
  std::size_t needed = 0;
  for (FrameColumn& column : columns) {
    column.least = *rc::gen::inRange<std::size_t>(1, 20);
    column.most = column.least + *rc::gen::inRange<std::size_t>(0, 30);
    column.rank = *rc::gen::inRange(0, 5);
    column.grow = *rc::gen::inRange(0, 3);
    if (column.rank == 0) needed += column.least + 2;
  }
  const auto width = *rc::gen::inRange<std::size_t>(0, 300);
  const auto widths = fit_columns(columns, width, 2);
  std::size_t used = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    RC_ASSERT((columns[i].rank > 0 || widths[i] >= columns[i].least));
    RC_ASSERT((widths[i] == 0 || widths[i] >= columns[i].least));
    RC_ASSERT(widths[i] <= columns[i].most);
    used += widths[i] > 0 ? widths[i] + 2 : 0;
  }
  if (needed <= width) RC_ASSERT(used <= width + 2);
}

RC_GTEST_PROP(Charts, AreAsWideAndHighAsAsked, ()) {
  Series series(*rc::gen::inRange<std::size_t>(0, 130));
  for (auto& value : series)
    if (*rc::gen::arbitrary<bool>()) value = *rc::gen::inRange(-10, 2000);
  const auto width = *rc::gen::inRange<std::size_t>(0, 200);
  const Look look{80, 24, *rc::gen::arbitrary<bool>()};
  RC_ASSERT(display_width(sparkline(series, 0, 1980, width, look)) == width);
  RC_ASSERT(line_width({bar(0.4, width, Paint::good, look)}) == width);
  for (const std::string& row : column_chart(series, 0, 1980, width, 5, look))
    RC_ASSERT(display_width(row) == width);
}

TEST(Charts, TheNewestIsAtTheRightAndWhatIsMissingIsBlank) {
  const Look look{};
  EXPECT_EQ(sparkline({std::nullopt, 0.0, 4.0, 8.0}, 0, 8, 4, look), " ▁▄█");
  EXPECT_EQ(sparkline({0.0, 8.0}, 0, 8, 5, look), " ▁▁██");
  EXPECT_EQ(column_chart({4.0, 8.0}, 0, 8, 2, 2, look), (std::vector<std::string>{" █", "██"}));
}

}  // namespace
}  // namespace derate
