#include "policy/registry/modes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "policy/registry/registry.h"
#include "policy/registry/test_policy.h"

namespace derate {
namespace {

TEST(Modes, NoneHasTheNameOfAPolicyOrOfAnother) {
  std::set<std::string> names;
  for (const PolicyInfo& info : policies()) names.insert(info.name);
  for (const Mode& mode : modes()) EXPECT_TRUE(names.insert(mode.name).second) << mode.name;
  EXPECT_EQ(modes().size(), 3u);
}

TEST(Modes, EachIsAPolicyThatRunsOnEveryChip) {
  for (const Mode& mode : modes()) {
    const auto pick = pick_policy(mode.name);
    ASSERT_TRUE(pick.ok()) << pick.error().message;
    EXPECT_STREQ(pick->info->name, mode.policy);
    EXPECT_TRUE(policy_params(*pick->info, pick->assignments).ok()) << mode.name;
    for (const TestChip& chip : kTestChips)
      EXPECT_TRUE(make_test_policy(mode.policy, chip, pick->assignments).ok()) << mode.name;
  }
}

TEST(Modes, APolicysOwnNameStillNamesIt) {
  for (const PolicyInfo& info : policies()) {
    const auto pick = pick_policy(info.name);
    ASSERT_TRUE(pick.ok());
    EXPECT_EQ(pick->info, &info);
    EXPECT_TRUE(pick->assignments.empty());
    EXPECT_EQ(find_mode(info.name), nullptr);
  }
}

TEST(Modes, AnUnknownNameIsAnsweredWithPoliciesAndModes) {
  const auto refused = pick_policy("turbo");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::not_found);
  EXPECT_TRUE(refused.error().message.starts_with("no policy 'turbo'; there are: assure, "));
  EXPECT_TRUE(refused.error().message.ends_with("; modes: max, balanced, saving"))
      << refused.error().message;
}

TEST(Modes, TheManualHasEach) {
  const auto text = read_file(std::string(DERATE_SOURCE_DIR) + "/docs/policies/README.md");
  ASSERT_TRUE(text.ok()) << text.error().message;
  for (const Mode& mode : modes()) {
    std::string row = std::string("| `") + mode.name + "` | `" + mode.policy + "`";
    for (const char* assignment : mode.assignments) row += std::string(", `") + assignment + "`";
    EXPECT_NE(text->find(row + " |"), std::string::npos) << row;
  }
  for (const PolicyInfo& info : policies())
    EXPECT_NE(text->find(std::string("](") + info.name + ".md)"), std::string::npos) << info.name;
}

}  // namespace
}  // namespace derate
