#include "core/card_reading.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

TEST(Xid, IsNamedByItsNumberAndInWordsWhereTheyAreKnown) {
  EXPECT_EQ(xid_name(79), "Xid 79 (the GPU has fallen off the bus)");
  EXPECT_EQ(xid_name(777), "Xid 777");
  EXPECT_EQ(xid_text(777), "");
  EXPECT_TRUE(is_of_application(31));
  EXPECT_FALSE(is_of_application(79));
  EXPECT_FALSE(is_of_application(777));
}

TEST(Xid, OneOfAProgramDoesNotHideThatOfTheCard) {
  const Xid card{48, {}}, program{45, {}};
  EXPECT_FALSE(gravest({}));
  EXPECT_EQ(gravest({.card = {}, .programs = {1, program}}), program);
  EXPECT_EQ(gravest({.card = {1, card}, .programs = {1, program}}), card);
}

}  // namespace
}  // namespace derate
