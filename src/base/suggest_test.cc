#include "base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace derate {
namespace {

using Words = std::vector<std::string>;

TEST(EditDistance, CountsEachKindOfEditOnce) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("status", ""), 6u);
  EXPECT_EQ(edit_distance("status", "statsu"), 1u);
  EXPECT_EQ(edit_distance("status", "statu"), 1u);
  EXPECT_EQ(edit_distance("status", "sstatus"), 1u);
  EXPECT_EQ(edit_distance("status", "stotus"), 1u);
  EXPECT_EQ(edit_distance("status", "STATUS"), 0u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);
}

TEST(NearestWord, IsTheOneOfFewestEdits) {
  const Words verbs = {"run", "restore", "resume", "report", "status"};
  EXPECT_EQ(nearest_word("statsu", verbs), "status");
  EXPECT_EQ(nearest_word("rn", verbs), "run");
  EXPECT_EQ(nearest_word("reprot", verbs), "report");
  EXPECT_EQ(nearest_word("frobnicate", verbs), std::nullopt);
  EXPECT_EQ(nearest_word("x", Words{"e"}), std::nullopt);
}

TEST(NearestWord, ABeginningIsEnoughWhereItIsTheOnlyOne) {
  const Words policies = {"geepafs", "efficient-fix", "energy-ucb"};
  EXPECT_EQ(nearest_word("eff", policies), "efficient-fix");
  EXPECT_EQ(nearest_word("e", policies), std::nullopt);
}

TEST(NearestWord, PrefersTheBeginningThatWasTyped) {
  EXPECT_EQ(nearest_word("resvme", Words{"resome", "resume"}), "resome");
  EXPECT_EQ(nearest_word("tets", Words{"bets", "test"}), "test");
}

TEST(NumberHint, KnowsOtherFormsOfANumberThatIsAllowed) {
  EXPECT_EQ(number_hint("10%", 0, 0.5), "; did you mean 0.1?");
  EXPECT_EQ(number_hint("5 %", 0, 0.5), "; did you mean 0.05?");
  EXPECT_EQ(number_hint("10", 0, 0.5), "; did you mean 0.1?");
  EXPECT_EQ(number_hint("0,31", 0, 1000), "; did you mean 0.31?");
  for (const char* none : {"", "x", "60%", "-3", "1,000,000", "nan", "%"})
    EXPECT_EQ(number_hint(none, 0, 0.5), "") << none;
  EXPECT_EQ(number_hint("2000", 0, 1000), "");
}

TEST(Choices, KeepAShortListAndDropALongOne) {
  EXPECT_EQ(choices("assur", "; there are: ", "assure, fixed"),
            "; did you mean 'assure'? There are: assure, fixed");
  EXPECT_EQ(choices("turbo", "; there are: ", "assure, fixed"), "; there are: assure, fixed");
  const std::string many = "assure, max-freq, efficient-fix, nv-boost, utiliz-scale, geepafs, more";
  EXPECT_EQ(choices("assur", "; there are: ", many), "; did you mean 'assure'?");
}

}  // namespace
}  // namespace derate
