#include "base/process_handle.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace derate {
namespace {

TEST(ProcessHandle, EndsWithItsProcessAndNotWithItsNumber) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessHandle handle = ProcessHandle::open(child);
  if (!handle.is_known()) GTEST_SKIP() << "this kernel has no pidfds";
  EXPECT_FALSE(handle.has_ended());
  ::kill(child, SIGKILL);
  siginfo_t left{};
  ::waitid(P_PID, static_cast<id_t>(child), &left, WEXITED | WNOWAIT);
  EXPECT_TRUE(handle.has_ended());  // the process was not reaped: its PID is still its own
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(handle.has_ended());
  EXPECT_TRUE(ProcessHandle::open(child).has_ended());  // known to have no process
}

TEST(ProcessHandle, KnowsNothingOfNobody) {
  EXPECT_FALSE(ProcessHandle().is_known());
  EXPECT_FALSE(ProcessHandle().has_ended());
  EXPECT_FALSE(ProcessHandle::open(0).is_known());
  EXPECT_FALSE(has_ended(nullptr));
}

}  // namespace
}  // namespace derate
