#include "integ/proc_files.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/test_folder.h"

namespace derate {
namespace {

// A folder in place of /proc, with one process, 7, whose environment is this.
class ProcFiles : public testing::Test {
 protected:
  ProcFiles() { std::filesystem::create_directory(folder.file("7")); }
  std::string environ_of(const std::string& text) {
    std::ofstream(proc + "/7/environ", std::ios::binary) << text;
    return read_proc_file(proc, 7, "environ").value_or("nothing");
  }
  Folder folder;
  const std::string proc = folder.path();
};

TEST_F(ProcFiles, OfAnEnvironmentOnlyTheBeginningIsRead) {
  EXPECT_EQ(environ_of(std::string(1 << 20, '\0')).size(), kLongestProcFile);
  const std::string first = "A=1" + std::string(1, '\0');
  EXPECT_EQ(environ_of(first + "B=" + std::string(1 << 20, 'x')), first);
  EXPECT_EQ(environ_of(first), first);
  EXPECT_FALSE(read_proc_file(proc, 8, "environ"));
}

TEST_F(ProcFiles, NoMoreIsReadThanIsWanted) {
  const std::string end(1, '\0');
  environ_of("A=1" + end + "WANTED=2" + end + std::string(30'000, 'x') + end);
  const auto text = read_proc_file(proc, 7, "environ", [](std::string_view read) {
    return variable_in(read, "WANTED").has_value();
  });
  ASSERT_TRUE(text);
  EXPECT_EQ(text->size(), 4096u);
  EXPECT_EQ(variable_in(*text, "WANTED"), "2");
}

TEST(ProcText, AVariableIsAWholeEntry) {
  using namespace std::string_view_literals;
  EXPECT_EQ(variable_in("X=1\0DELTA=2\0"sv, "DELTA"), "2");
  EXPECT_EQ(variable_in("MY_DELTA=1\0DELTAS=3\0A=DELTA=4\0DELTA=\0"sv, "DELTA"), "");
  EXPECT_EQ(variable_in("DELTA=1\0DELTA=2"sv, "DELTA"), "1");
  EXPECT_EQ(variable_in("DELTA"sv, "DELTA"), std::nullopt);
  EXPECT_EQ(variable_in(std::string(1 << 20, '\0'), "DELTA"), std::nullopt);
}

TEST(ProcText, AUserIsOneThatThereCanBe) {
  EXPECT_EQ(real_user("Name:\tx\nUid:\t7\t8\t8\t8\nGid:\t1\n"), 7u);
  EXPECT_EQ(real_user("Name:\tUid:\t3\nUid:\t4294967294\t0\n"), 4294967294u);
  for (const char* uid : {"4294967295", "4294967296", "-1", "", "seven"})
    EXPECT_EQ(real_user("Uid:\t" + std::string(uid) + "\t0\n"), std::nullopt) << uid;
}

RC_GTEST_PROP(ProcText, AnyTextHasAStatOrNone, (std::string text, std::uint32_t started)) {
  (void)parse_proc_stat(text);
  (void)real_user(text);
  const std::string line = "1 (" + text + ") S 2 3 4 34816 0 0 0 0 0 0 0 0 0 0 0 0 0 0 " +
                           std::to_string(started) + " 0";
  const auto stat = parse_proc_stat(line);
  RC_ASSERT(stat);
  RC_ASSERT((stat->name == text && stat->started == started));
  RC_ASSERT((stat->parent == 2 && stat->group == 3 && stat->session == 4));
  RC_ASSERT(stat->terminal == 34816);
}

}  // namespace
}  // namespace derate
