#include "base/child_process.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

// Its exit code, and what it printed.
std::string run(const std::vector<std::string>& command, ChildOptions options = {}) {
  const Folder folder;
  options.output = folder.file("out");
  auto started = Child::start(command, options);
  if (!started.ok()) return started.error().message;
  if (!started->child) return std::to_string(started->exit_code) + " " + started->message;
  SystemClock clock;
  std::optional<int> code;
  while (!(code = started->child->poll()))
    clock.sleep_until(clock.now() + std::chrono::milliseconds(1));
  started->child->end(clock, {});
  return std::to_string(*code) + " " + *read_file(options.output);
}

TEST(ChildProcess, EndsWithItsExitCodeOrItsSignal) {
  EXPECT_EQ(run({"sh", "-c", "echo $WORD; exit 3"}, {.environment = {"WORD=here"}}), "3 here\n");
  EXPECT_EQ(run({"sh", "-c", "kill -TERM $$"}), "143 ");
}

TEST(ChildProcess, WhatCannotBeStartedExitsAsOfEnv) {
  EXPECT_EQ(run({"/proc/no-such-command"}).substr(0, 4), "127 ");
  EXPECT_EQ(run({"/proc/self/environ"}).substr(0, 4), "126 ");
}

// SUDO_UID as that user's process has it, and who is behind it then.
std::string behind_sudo(uid_t user, const char* sudo_uid) {
  return as_user(user, [&]() -> std::string {
    ::setenv("SUDO_UID", sudo_uid, 1);
    const auto who = user_behind_sudo();
    if (!who.ok()) return "error: " + who.error().message;
    return *who ? std::to_string((*who)->uid) + " " + (*who)->user : "nobody";
  });
}

TEST(UserBehindSudo, IsOneOnlyForRoot) {
  const uid_t other = ::geteuid() == 0 ? kNobody : ::geteuid();
  for (const char* given : {"0", "65534", "4294967295", "rubbish", ""})
    EXPECT_EQ(behind_sudo(other, given), "nobody") << given;
}

TEST(UserBehindSudo, IsWhoIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "sudo makes root of others";
  EXPECT_EQ(behind_sudo(0, "65534"), "65534 nobody");
  EXPECT_EQ(behind_sudo(0, ""), "nobody");
  EXPECT_EQ(behind_sudo(0, "4123456789"),
            "error: SUDO_UID '4123456789' is no user of this machine");
  for (const char* bad : {"rubbish", "-1", "4294967295", "4294967296", "1 "})
    EXPECT_EQ(behind_sudo(0, bad).find("error: SUDO_UID '" + std::string(bad) + "': allowed is "),
              0u)
        << bad;
}

TEST(ChildProcess, RunsAsWhoIsNamedAndHasNoOthersRights) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become others";
  const RunAs nobody{kNobody, kNobody, {kNobody}, "nobody", "/nonexistent"};
  EXPECT_EQ(run({"sh", "-c", "id -u; id -G; echo $HOME $USER $LOGNAME"}, {.as = nobody}),
            "0 65534\n65534\n/nonexistent nobody nobody\n");
}

}  // namespace
}  // namespace derate
