#include "integ/pod_wish.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

std::optional<PodWish> wish_of(const PodAnnotations& annotations) {
  auto out = parse_pod_wish(annotations);
  EXPECT_TRUE(out.ok()) << out.error().message;
  return out.ok() ? *out : std::nullopt;
}

TEST(PodWish, HasTheThreeKeys) {
  EXPECT_EQ(wish_of({}), std::nullopt);
  EXPECT_EQ(wish_of({{"note", "by alice"}}), std::nullopt);
  EXPECT_EQ(wish_of({{"delta", "0.1"}, {"note", "x"}}), (PodWish{true, 0.1, ""}));
  EXPECT_EQ(wish_of({{"policy", "max-freq"}}), (PodWish{true, std::nullopt, "max-freq"}));
  EXPECT_EQ(wish_of({{"govern", "true"}}), (PodWish{true, std::nullopt, ""}));
  EXPECT_EQ(wish_of({{"govern", "false"}}), (PodWish{false, std::nullopt, ""}));
}

// In either order.
TEST(PodWish, TheStricterOfTwoAnnotationsCounts) {
  for (const PodAnnotations& both : {PodAnnotations{{"govern", "false"}, {"delta", "0.2"}},
                                     PodAnnotations{{"delta", "0.2"}, {"govern", "false"}},
                                     PodAnnotations{{"govern", "true"}, {"delta", "0"}},
                                     PodAnnotations{{"delta", "0"}, {"govern", "true"}}})
    EXPECT_FALSE(wish_of(both)->govern);
}

TEST(PodWish, AValueThatDoesNotParseIsNoWish) {
  for (const char* delta : {"", "0,1", "10%", "nan", "inf", "-0.1", "0.51", "1e-1x", " 0.1",
                            "0.1000000000000000000000000000001"})
    EXPECT_FALSE(parse_pod_wish({{"policy", "assure"}, {"delta", delta}}).ok()) << delta;
  for (const char* govern : {"", "no", "False", "0", "true "})
    EXPECT_FALSE(parse_pod_wish({{"govern", govern}}).ok()) << govern;
  for (const char* policy : {"", "Assure", "a b", "../x"})
    EXPECT_FALSE(parse_pod_wish({{"policy", policy}}).ok()) << policy;
}

TEST(PodWish, TheErrorShowsTheKeyAndAPartOfTheValue) {
  const auto wrong = parse_pod_wish({{"delta", std::string(1000, 'x') + "\n"}});
  ASSERT_FALSE(wrong.ok());
  EXPECT_TRUE(wrong.error().message.starts_with("annotation delta 'xxx"));
  EXPECT_LT(wrong.error().message.size(), 120U);
}

// No text makes a loss that is not allowed.
RC_GTEST_PROP(PodWish, AnyTextIsALossInBoundsOrRefused, (const std::string& text)) {
  const auto wish = parse_pod_wish({{"delta", text}});
  if (!wish.ok()) return;
  RC_ASSERT(wish->has_value());
  if ((*wish)->delta) RC_ASSERT(*(*wish)->delta > 0 && *(*wish)->delta <= 0.5);
  RC_ASSERT((*wish)->delta.has_value() == (*wish)->govern);
}

}  // namespace
}  // namespace derate
