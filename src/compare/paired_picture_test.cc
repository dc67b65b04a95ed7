#include "compare/paired_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace derate {
namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

std::vector<RunPair> some_pairs(int n) {
  std::vector<RunPair> out;
  for (int i = 0; i < n; ++i)
    out.push_back(
        {{from_seconds(10), Joules(1000 + 3 * i)}, {from_seconds(10.3), Joules(880 - 2 * i)}});
  return out;
}

TEST(ComparisonPicture, HasADotForEachPairAndFigure) {
  const std::string picture = comparison_picture(some_pairs(6), "./a", "./b");
  EXPECT_EQ(count_of(picture, "<circle"), 18u);
  EXPECT_EQ(count_of(picture, "fill=\"#9ecae1\""), 3u);
  EXPECT_NE(picture.find("no change"), std::string::npos);
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
}

TEST(ComparisonPicture, CommandsAreText) {
  const std::string picture =
      comparison_picture(some_pairs(4), "a <script>&\n\x1b[1m", std::string(300, 'x'));
  EXPECT_EQ(picture.find("<script>"), std::string::npos);
  EXPECT_NE(picture.find("a &lt;script&gt;&amp;??[1m"), std::string::npos);
  EXPECT_EQ(picture.find(std::string(100, 'x')), std::string::npos);
}

TEST(ComparisonPicture, WithoutEnergyOrPairsThereIsTimeAlone) {
  auto pairs = some_pairs(4);
  pairs[2].a.energy.reset();
  EXPECT_EQ(count_of(comparison_picture(pairs, "a", "b"), "<circle"), 4u);
  EXPECT_EQ(count_of(comparison_picture({}, "a", "b"), "<circle"), 0u);
}

}  // namespace
}  // namespace derate
