// For tests of where the programs keep what they share, and of whose folders they will not have.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "config/paths.h"

namespace derate {

// A folder for temporary files as /tmp is one, and a user who has no folder of their own.
class PathsTest : public testing::Test {
 protected:
  static constexpr uid_t kAttacker = 65533, kVictim = kNobody;

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
    std::filesystem::create_directory(squat_);
    ::chmod(squat_.c_str(), mode);
    ASSERT_EQ(::chown(squat_.c_str(), owner, owner), 0);
  }

  const Folder home_{01777};
  const std::string root_ = home_.path(), squat_ = root_ + "/derate-" + std::to_string(kVictim);
};

}  // namespace derate
