#include "base/errc_word.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace derate {
namespace {

// A kind of failure that has no word would come back as another one.
TEST(ErrcWords, EachComesBackAsItself) {
  std::set<std::string> words;
  for (int i = 0; i <= static_cast<int>(Errc::interrupted); ++i) {
    const auto code = static_cast<Errc>(i);
    const auto back = errc_of(word_of(code));
    ASSERT_TRUE(back) << i;
    EXPECT_EQ(*back, code) << i;
    words.emplace(word_of(code));
  }
  EXPECT_EQ(words.size(), 15u);
  EXPECT_FALSE(errc_of("no_such_word"));
  EXPECT_EQ(word_of(Errc::invalid_argument), "invalid_argument");
  EXPECT_EQ(word_of(Errc::gpu_stuck), "gpu_stuck");
  EXPECT_EQ(word_of(Errc::interrupted), "interrupted");
}

}  // namespace
}  // namespace derate
