#include "config/paths.h"

#include "config/test_paths.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

TEST_F(PathsTest, TheFolderOfLastResortIsMadeForOneUserAlone) {
  EXPECT_EQ(as_victim(run_directory), squat_);
  EXPECT_EQ(as_victim(state_directory), squat_);
  EXPECT_EQ(as_victim(make_run), "");
  struct stat info {};
  ASSERT_EQ(::lstat(squat_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_EQ(info.st_uid, kVictim);
  EXPECT_EQ(as_victim(make_run), "");
  EXPECT_EQ(as_victim(check_state), "");
}

TEST_F(PathsTest, OneOfAnotherUserIsToldWithWhatToDo) {
  squat(kAttacker, 0777);
  const std::pair<std::string (*)(), const char*> calls[] = {{make_run, "DERATE_RUN_DIR"},
                                                             {check_state, "DERATE_STATE_DIR"}};
  for (const auto& [call, variable] : calls)
    EXPECT_EQ(as_victim(call), "'" + squat_ +
                                   "' belongs to user 65533, who is neither root nor user 65534; "
                                   "or name a folder of your own by " +
                                   variable);
}

TEST_F(PathsTest, OneThatIsOpenToOthersIsTold) {
  for (const mode_t mode : {0755, 0770, 0702}) {
    squat(kVictim, mode);
    EXPECT_NE(as_victim(make_run).find("is open to others (mode 0"), std::string::npos) << mode;
    EXPECT_NE(as_victim(check_state).find("then chmod 700 it; or name"), std::string::npos);
  }
}

TEST_F(PathsTest, VariablesOfXdgCountWhenTheyAreAbsoluteAndTheFolderIsOnesOwn) {
  EXPECT_EQ(as_victim(run_directory, {{"XDG_RUNTIME_DIR", "here"}}), squat_);
  EXPECT_EQ(as_victim(run_directory, {{"XDG_RUNTIME_DIR", root_}}), root_ + "/derate");
  const std::map<std::string, std::string> set = {{"XDG_RUNTIME_DIR", root_},
                                                  {"XDG_STATE_HOME", root_}};
  EXPECT_EQ(as_victim(check_state, set), "");  // made when something is kept
  EXPECT_FALSE(fs::exists(root_ + "/derate"));
  EXPECT_EQ(as_victim(make_run, set), "");
  EXPECT_EQ(as_victim(check_state, set), "");
  ASSERT_EQ(::chown((root_ + "/derate").c_str(), kAttacker, kAttacker), 0);
  EXPECT_NE(as_victim(make_run, set).find("belongs to user 65533"), std::string::npos);
  EXPECT_NE(as_victim(check_state, set).find("belongs to user 65533"), std::string::npos);
}

TEST_F(PathsTest, AFolderThatIsNamedIsTakenAsItIs) {
  fs::create_directory(root_ + "/shared");
  ASSERT_EQ(::chown((root_ + "/shared").c_str(), kVictim, kVictim), 0);
  ::chmod((root_ + "/shared").c_str(), 0775);
  const std::map<std::string, std::string> set = {{"DERATE_RUN_DIR", root_ + "/shared"},
                                                  {"DERATE_STATE_DIR", root_ + "/shared"}};
  EXPECT_EQ(as_victim(make_run, set), "");
  EXPECT_EQ(as_victim(check_state, set), "");
}

}  // namespace
}  // namespace derate
