#include "base/secret.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace derate {
namespace {

TEST(Secret, AreRandomAndOfLettersThatAUrlHas) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string secret = *random_secret("derate_");
    EXPECT_EQ(secret.size(), 7 + kSecretLetters);
    EXPECT_TRUE(secret.starts_with("derate_"));
    EXPECT_TRUE(std::all_of(secret.begin(), secret.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
             c == '-' || c == '_';
    })) << secret;
    EXPECT_TRUE(seen.insert(secret).second);
  }
}

TEST(Secret, TheSameIsTheSameAlone) {
  EXPECT_TRUE(is_same_secret("abc", "abc"));
  for (const char* given : {"", "ab", "abd", "xbc", "abcd"})
    EXPECT_FALSE(is_same_secret("abc", given));
  EXPECT_FALSE(is_same_secret("", "a"));
}

}  // namespace
}  // namespace derate
