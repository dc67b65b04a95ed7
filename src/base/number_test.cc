#include "base/number.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace derate {
namespace {

// Whatever 64 bits hold: the number itself where the type can have it, else nothing.
RC_GTEST_PROP(Number, IsWithinItsTypeOrNothing, (std::int64_t value)) {
  // Near the edges of the types, too, which a generator seldom meets.
  const std::int64_t edges[] = {0, -1, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX - 9};
  if (*rc::gen::inRange(0, 2) == 0)
    value = edges[*rc::gen::inRange(0, 6)] + *rc::gen::inRange<std::int64_t>(-2, 3);
  const std::string text = std::to_string(value);
  RC_ASSERT(parse_number<std::int64_t>(text) == value);
  const auto small = parse_number<std::int32_t>(text);
  RC_ASSERT(small.has_value() == (value >= INT32_MIN && value <= INT32_MAX));
  if (small) RC_ASSERT(*small == value);
  const auto natural = parse_number<std::uint32_t>(text);
  RC_ASSERT(natural.has_value() == (value >= 0 && value <= UINT32_MAX));
  if (natural) RC_ASSERT(*natural == value);
  const auto uid = parse_uid(text);
  RC_ASSERT(uid.has_value() == (value >= 0 && value < UINT32_MAX));
  if (uid) RC_ASSERT(*uid == value);
}

RC_GTEST_PROP(Number, IsTheWholeText, (std::uint32_t value)) {
  const std::string text = std::to_string(value);
  for (const std::string& other : {" " + text, text + " ", "+" + text, text + ".0", text + "e0",
                                   "0x" + text, text + std::string(1, '\0'), std::string()})
    RC_ASSERT(!parse_number<std::int64_t>(other));
}

TEST(Number, OfAUser) {
  EXPECT_EQ(parse_uid("0"), 0u);
  EXPECT_EQ(parse_uid("4294967294"), 4294967294u);
  for (const char* text : {"4294967295", "4294967296", "-1", "18446744073709551616", "ann", ""})
    EXPECT_FALSE(parse_uid(text)) << text;
}

}  // namespace
}  // namespace derate
