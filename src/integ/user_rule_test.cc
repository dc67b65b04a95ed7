#include "integ/user_rule.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

using Groups = std::vector<gid_t>;
constexpr uid_t kUser = 54321;

TEST(UserRule, EveryoneOrRootOrAGroup) {
  const Folder folder;
  const std::string file = folder.path() + "/group";
  ASSERT_TRUE(write_file_atomically(file, "root:x:0:\ngpu:x:4242:alice,bob\n").ok());
  EXPECT_TRUE(user_rule("everyone", file).allows(kUser, {}));
  EXPECT_FALSE(user_rule("root", file).allows(kUser, Groups{0, 4242}));
  for (const char* group : {"gpu", "4242"}) {
    EXPECT_TRUE(user_rule(group, file).allows(kUser, Groups{100, 4242})) << group;
    EXPECT_FALSE(user_rule(group, file).allows(kUser, Groups{100})) << group;
    EXPECT_FALSE(user_rule(group, file).allows(kUser, {})) << group;
  }
  for (const char* rule : {"root", "everyone", "gpu", "nobody's"}) {
    EXPECT_TRUE(user_rule(rule, file).allows(0, {})) << rule;
    EXPECT_TRUE(user_rule(rule, file).allows(::geteuid(), {})) << rule;
  }
}

// What is misspelt lets nobody in.
TEST(UserRule, AGroupThatIsNotThereHasNoMembers) {
  for (const char* rule : {"Everyone", "", "-1", "4294967296", "nosuchgroup"})
    for (const char* file : {"/dev/null", "/no/such/file"})
      EXPECT_FALSE(user_rule(rule, file).allows(kUser, Groups{0, 100})) << rule;
}

TEST(UserRule, AUserIsANameOfTheFileOrANumber) {
  const Folder folder;
  const std::string file = folder.path() + "/passwd";
  const std::string agent = "derate-agent:x:970:970::/nonexistent:/usr/sbin/nologin\n";
  ASSERT_TRUE(write_file_atomically(file, "root:x:0:0::/root:/bin/sh\n" + agent).ok());
  EXPECT_EQ(user_named("derate-agent", file), 970u);
  EXPECT_EQ(user_named("17", file), 17u);
  EXPECT_EQ(user_named("17", "/no/such/file"), 17u);
  for (const char* none : {"derate", "", "-1", "4294967295", "derate-agent "})
    EXPECT_EQ(user_named(none, file), std::nullopt) << none;
  EXPECT_EQ(name_of_user(970, file), "derate-agent");
  EXPECT_EQ(name_of_user(971, file), std::nullopt);
  EXPECT_EQ(name_of_user(970, "/no/such/file"), std::nullopt);
}

}  // namespace
}  // namespace derate
