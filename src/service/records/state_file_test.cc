#include "service/records/state_file.h"

#include "base/json.h"
#include "base/text.h"
#include "config/test_paths.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

class StateFileTest : public PathsTest {};

TEST_F(StateFileTest, ALinkIsNotFollowed) {
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
      StateFile state(clock, "run", Log());
      state.publish(Snapshot{});
      return std::string();
    });
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(root_ + "/project")) files += entry.exists();
    EXPECT_EQ(files, 1u);
  }
}

TEST_F(StateFileTest, StatesOfAnotherUsersFolderAreNotBelieved) {
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

}  // namespace
}  // namespace derate
