#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace derate {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error{Errc::invalid_argument, "odd: " + std::to_string(n)};
  return n / 2;
}
Result<int> quarter(int n) { return TRY(half(TRY(half(n)))); }
Result<void> check_even(int n) {
  TRY(half(n));
  return {};
}
Result<void> check_both(int a, int b) {
  TRY(check_even(a));
  TRY(check_even(b));
  return {};
}
Result<std::unique_ptr<int>> boxed(int n) { return std::make_unique<int>(TRY(half(n))); }

TEST(Result, TryPassesValuesOn) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_TRUE(check_both(2, 4).ok());
  EXPECT_EQ(**boxed(8), 4);
}

TEST(Result, TryPassesErrorsOn) {
  const auto r = quarter(6);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Errc::invalid_argument);
  EXPECT_EQ(r.error().message, "odd: 3");
  EXPECT_FALSE(check_both(2, 3).ok());
  EXPECT_FALSE(boxed(1).ok());
}

TEST(Result, ContextLeadsTheMessage) {
  EXPECT_EQ(half(3).with("file.toml:3").error().message, "file.toml:3: odd: 3");
  EXPECT_EQ(*half(4).with("unused"), 2);
}

}  // namespace
}  // namespace derate
