// Where the programs keep what they share, and whose folders they will not have.
#include "config/paths.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "base/json.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "service/state_file.h"

namespace derate::cli {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kAttacker = 65533, kVictim = 65534;

// A folder for temporary files as /tmp is one, and a user who has no folder of his own.
class Paths : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become others";
  }

  // What the victim gets to see; `more` comes to an environment that names no folder.
  std::string as_victim(const std::function<std::string()>& what,
                        const std::map<std::string, std::string>& more = {}) const {
    return as_user(kVictim, [&] {
      for (const char* name :
           {"DERATE_RUN_DIR", "DERATE_STATE_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"})
        ::unsetenv(name);
      ::setenv("TMPDIR", root_.c_str(), 1);
      for (const auto& [name, value] : more) ::setenv(name.c_str(), value.c_str(), 1);
      return what();
    });
  }
  static std::string told(const Result<void>& result) {
    return result.ok() ? "" : result.error().message;
  }
  static std::string make_run() { return told(make_run_directory()); }
  static std::string check_state() { return told(check_state_directory()); }
  void squat(uid_t owner, mode_t mode) const {
    fs::create_directory(squat_);
    ::chmod(squat_.c_str(), mode);
    ASSERT_EQ(::chown(squat_.c_str(), owner, owner), 0);
  }

  const Folder home_{01777};
  const std::string root_ = home_.path(), squat_ = root_ + "/derate-" + std::to_string(kVictim);
};

TEST_F(Paths, TheFolderOfLastResortIsMadeForOneUserAlone) {
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

TEST_F(Paths, OneOfAnotherUserIsToldWithWhatToDo) {
  squat(kAttacker, 0777);
  const std::pair<std::string (*)(), const char*> calls[] = {{make_run, "DERATE_RUN_DIR"},
                                                             {check_state, "DERATE_STATE_DIR"}};
  for (const auto& [call, variable] : calls)
    EXPECT_EQ(as_victim(call), "'" + squat_ +
                                   "' belongs to user 65533, who is neither root nor user 65534; "
                                   "or name a folder of your own by " +
                                   variable);
}

TEST_F(Paths, OneThatIsOpenToOthersIsTold) {
  for (const mode_t mode : {0755, 0770, 0702}) {
    squat(kVictim, mode);
    EXPECT_NE(as_victim(make_run).find("is open to others (mode 0"), std::string::npos) << mode;
    EXPECT_NE(as_victim(check_state).find("then chmod 700 it; or name"), std::string::npos);
  }
}

TEST_F(Paths, ALinkIsNotFollowed) {
  fs::create_directory(root_ + "/project");
  ASSERT_EQ(::chown((root_ + "/project").c_str(), kVictim, kVictim), 0);
  ASSERT_TRUE(write_file_atomically(root_ + "/project/run-999999999.json", "mine").ok());
  ASSERT_EQ(::chown((root_ + "/project/run-999999999.json").c_str(), kVictim, kVictim), 0);
  fs::create_symlink(root_ + "/project", squat_);
  for (const uid_t owner : {kAttacker, kVictim}) {
    ASSERT_EQ(::lchown(squat_.c_str(), owner, owner), 0);
    EXPECT_NE(as_victim(make_run), "");
    // Nothing of it is taken for what a governor left.
    as_victim([] {
      SystemClock clock;
      StateFile state(clock, "run", {});
      state.publish(Snapshot{});
      return std::string();
    });
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(root_ + "/project")) files += entry.exists();
    EXPECT_EQ(files, 1u);
  }
}

TEST_F(Paths, StatesOfAnotherUsersFolderAreNotBelieved) {
  const auto states = [] {
    SystemClock clock;
    return json_text(Json(read_states(clock)));
  };
  squat(kVictim, 0700);
  as_victim([] {
    SystemClock clock;
    Json state = {{"owner", "a paths_test"}, {"pid", ::getppid()}, {"gpus", Json::array()}};
    state["time_unix_seconds"] = seconds(clock.wall_now().time_since_epoch());
    (void)write_file_atomically(run_directory() + "/run-1.json", json_text(state)).ok();
    return std::string();
  });
  EXPECT_NE(as_victim(states).find("a paths_test"), std::string::npos);
  ASSERT_EQ(::chown(squat_.c_str(), kAttacker, kAttacker), 0);
  ::chmod(squat_.c_str(), 0755);
  EXPECT_EQ(as_victim(states).find("a paths_test"), std::string::npos);
}

TEST_F(Paths, VariablesOfXdgCountWhenTheyAreAbsoluteAndTheFolderIsOnesOwn) {
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

TEST_F(Paths, AFolderThatIsNamedIsTakenAsItIs) {
  fs::create_directory(root_ + "/shared");
  ASSERT_EQ(::chown((root_ + "/shared").c_str(), kVictim, kVictim), 0);
  ::chmod((root_ + "/shared").c_str(), 0775);
  const std::map<std::string, std::string> set = {{"DERATE_RUN_DIR", root_ + "/shared"},
                                                  {"DERATE_STATE_DIR", root_ + "/shared"}};
  EXPECT_EQ(as_victim(make_run, set), "");
  EXPECT_EQ(as_victim(check_state, set), "");
}

}  // namespace
}  // namespace derate::cli
