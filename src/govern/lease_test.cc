#include "govern/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "base/check.h"
#include "base/clock.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

class LeaseTest : public testing::Test {
 protected:
  ~LeaseTest() override {
    for (const pid_t process : processes_) {
      ::kill(-process, SIGKILL);  // with those that it has started
      ::waitpid(process, nullptr, 0);
    }
  }

  std::string path() const { return folder_ + "/GPU-1.lock"; }
  std::string refusal() const {
    const auto lease = take_lease(folder_, "GPU-1", "second");
    if (lease.ok()) return "taken";
    EXPECT_EQ(lease.error().code, Errc::busy) << lease.error().message;
    return lease.error().message;
  }
  // A lease file as an earlier version made it.
  void old_file(const std::string& text) const {
    const UniqueFd file(::open(path().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    CHECK(::fchmod(file.get(), 0644) == 0);
    CHECK(::pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  // A process that does this, says so and then waits to be killed; 0 where it could not.
  pid_t process(const std::function<bool()>& does, uid_t uid = ::geteuid()) {
    int ends[2];
    CHECK(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      const bool dropped = uid == ::geteuid() || ::setresuid(uid, uid, uid) == 0;
      const char done = dropped && does() ? 'y' : 'n';
      (void)!::write(ends[1], &done, 1);
      while (true) ::pause();
    }
    char answer = 'n';
    (void)!::read(ends[0], &answer, 1);
    for (const int end : ends) ::close(end);
    processes_.push_back(child);
    return answer == 'y' ? child : 0;
  }
  // Locked as who can only read a file may lock it.
  bool locks() const {
    const int file = ::open(path().c_str(), O_RDONLY);
    return file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0;
  }

  const Folder home_{0755};
  const std::string folder_ = home_.path();
  std::vector<pid_t> processes_;
};

TEST_F(LeaseTest, OnlyItsOwnerCanOpenIt) {
  const mode_t before = ::umask(0);
  const auto lease = take_lease(folder_, "GPU-1", "test");
  ::umask(before);
  ASSERT_TRUE(lease.ok());
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(is_lease_of(lease->get(), folder_, "GPU-1"));
  EXPECT_FALSE(is_lease_of(lease->get(), folder_, "GPU-2"));
}

TEST_F(LeaseTest, NamesAHolderThatLives) {
  const auto lease = take_lease(folder_, "GPU-1", "derated, pid 17");
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(refusal(), "GPU-1 is governed by derated, pid 17");
  EXPECT_TRUE(lease_holder(folder_, "GPU-1").lives);
}

// A descriptor outlives who took it: the worker's, when its guard was killed.
TEST_F(LeaseTest, AHolderThatIsGoneIsNotTakenForTheOneWhoHoldsIt) {
  ASSERT_TRUE(process([&] {
    const pid_t taker = ::fork();
    if (taker != 0) {
      int status = 0;
      return ::waitpid(taker, &status, 0) == taker && status == 0;
    }
    static auto lease = take_lease(folder_, "GPU-1", "derated, pid 17");
    if (::fork() == 0)
      while (true) ::pause();
    ::_exit(lease.ok() ? 0 : 1);
  }));
  EXPECT_EQ(refusal(),
            "GPU-1 is held by an unknown process (derated, pid 17, who is named there, is gone)");
  EXPECT_FALSE(lease_holder(folder_, "GPU-1").lives);
}

// Its number is another process's by now.
TEST_F(LeaseTest, AProcessThatHasGotTheNumberIsNotTheHolder) {
  const auto lease = take_lease(folder_, "GPU-1", "derated, pid 17");
  ASSERT_TRUE(lease.ok());
  const std::string text = fmt::format("derated, pid 17\n{} 1\n", ::getpid());
  ASSERT_EQ(::ftruncate(lease->get(), 0), 0);
  ASSERT_GT(::pwrite(lease->get(), text.data(), text.size(), 0), 0);
  EXPECT_NE(refusal().find("an unknown process"), std::string::npos);
}

// A lease of which the named process is gone, held by this one.
UniqueFd lease_of_the_gone(const std::string& folder) {
  auto lease = *take_lease(folder, "GPU-1", "derated, pid 17");
  const std::string text = fmt::format("derated, pid 17\n{} 1\n", ::getpid());
  EXPECT_EQ(::ftruncate(lease.get(), 0), 0);
  EXPECT_GT(::pwrite(lease.get(), text.data(), text.size(), 0), 0);
  return lease;
}

TEST_F(LeaseTest, WhoComesNextWaitsForAKilledProcessToEnd) {
  UniqueFd ending = lease_of_the_gone(folder_);
  FakeClock clock;
  int waits = 0;
  const auto lease = await_lease(clock, folder_, "GPU-1", "next", clock.now(), [&] {
    if (++waits == 3) ending = UniqueFd();  // its last thread has ended
  });
  EXPECT_TRUE(lease.ok());
  EXPECT_EQ(waits, 3);
  EXPECT_LT(clock.now(), Instant{} + kExitPatience);
}

TEST_F(LeaseTest, NobodyWaitsForOneThatStaysNorForOneThatLives) {
  FakeClock clock;
  const auto wait = [&] {
    return await_lease(clock, folder_, "GPU-1", "next", clock.now(), [] {}).error().code;
  };
  auto held = take_lease(folder_, "GPU-1", "derated, pid 17");
  EXPECT_EQ(wait(), Errc::busy);
  EXPECT_EQ(clock.now(), Instant{});
  *held = UniqueFd();
  const UniqueFd stays = lease_of_the_gone(folder_);
  EXPECT_EQ(wait(), Errc::busy);
  EXPECT_EQ(clock.now(), Instant{} + kExitPatience);
}

// --- files of earlier versions -------------------------------------------------------------------

TEST_F(LeaseTest, AFileThatOthersCanOpenIsReplaced) {
  old_file("derated, pid 17");
  const UniqueFd before(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
  const auto lease = take_lease(folder_, "GPU-1", "new");
  ASSERT_TRUE(lease.ok());
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // Who had opened the old one can lock that, and keeps nobody out.
  EXPECT_EQ(::flock(before.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(refusal().find("GPU-1 is governed by new"), 0u);
}

TEST_F(LeaseTest, AGovernorOfAnEarlierVersionKeepsItsLease) {
  const pid_t other = process([&] {
    old_file(fmt::format("derated, pid {}", ::getpid()));
    return locks();
  });
  ASSERT_NE(other, 0);
  EXPECT_EQ(refusal(), fmt::format("GPU-1 is governed by derated, pid {}", other));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  processes_.clear();
  EXPECT_EQ(refusal(), "taken");
}

// Its guard, who had taken it, is gone; the worker still has the GPU.
TEST_F(LeaseTest, AWorkerOfAnEarlierVersionKeepsTheLeaseOfItsGuard) {
  ASSERT_TRUE(process([&] {
    const pid_t guard = ::fork();
    if (guard != 0) {
      int status = 0;
      return ::waitpid(guard, &status, 0) == guard && status == 0;
    }
    old_file(fmt::format("derated, pid {}", ::getpid()));
    const bool locked = locks();
    if (::fork() == 0)
      while (true) ::pause();
    ::_exit(locked ? 0 : 1);
  }));
  EXPECT_NE(refusal().find("GPU-1 is held by an unknown process (derated, pid "),
            std::string::npos);
}

// Whether the kernel's list has the lock. In a PID namespace, as in a container, it leaves out
// those whose taker has ended.
bool is_listed(const std::string& path) {
  struct stat info {};
  CHECK(::stat(path.c_str(), &info) == 0);
  return read_file("/proc/locks")->find(fmt::format(":{} ", info.st_ino)) != std::string::npos;
}

// Where it cannot be told whose the lock is, the file is a governor's.
TEST_F(LeaseTest, AStrangerWhoHoldsAnOldFileKeepsNobodyOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user's process needs root";
  for (const bool child : {false, true}) {
    SCOPED_TRACE(child ? "by a child of who took it" : "by who took it");
    old_file("derated, pid 1999999");
    ASSERT_TRUE(process(
        [&] {
          if (!child) return locks();
          const pid_t taker = ::fork();
          if (taker != 0) {
            int status = 0;
            return ::waitpid(taker, &status, 0) == taker && status == 0;
          }
          const bool locked = locks();
          if (::fork() == 0)
            while (true) ::pause();
          ::_exit(locked ? 0 : 1);
        },
        kNobody));
    const std::string doubt =
        "GPU-1 is held by an unknown process (derated, pid 1999999, who is named there, is gone)";
    const bool listed = is_listed(path());
    EXPECT_TRUE(listed || child);  // only a taker that has ended may be left out
    EXPECT_EQ(refusal(), listed ? "taken" : doubt);
    std::filesystem::remove(path());
  }
}

TEST_F(LeaseTest, AStrangerCannotOpenALease) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user's process needs root";
  ASSERT_TRUE(take_lease(folder_, "GPU-1", "gone").ok());
  EXPECT_EQ(process([&] { return locks(); }, kNobody), 0);
  EXPECT_EQ(refusal(), "taken");
}

// Many at once on an old file: one has it at a time.
TEST_F(LeaseTest, TwoGovernorsNeverMeetWhileAFileIsReplaced) {
  const std::string log = folder_ + "/log";
  for (int round = 0; round < 20; ++round) {
    old_file("derated, pid 1999999");
    std::vector<pid_t> governors;
    for (int i = 0; i < 6; ++i) {
      const pid_t governor = ::fork();
      if (governor == 0) {
        const auto lease = take_lease(folder_, "GPU-1", "test");
        if (!lease.ok()) ::_exit(lease.error().code == Errc::busy ? 2 : 3);
        // Until it ends nobody else is let in.
        const int mine = ::open(log.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        SystemClock().sleep_until(SystemClock().now() + 2ms);
        if (mine >= 0) ::unlink(log.c_str());
        ::_exit(mine >= 0 ? 0 : 1);
      }
      governors.push_back(governor);
    }
    int met = 0, failed = 0, took = 0;
    for (const pid_t governor : governors) {
      int status = 0;
      ::waitpid(governor, &status, 0);
      took += WEXITSTATUS(status) == 0;
      met += WEXITSTATUS(status) == 1;
      failed += WEXITSTATUS(status) == 3;
    }
    ASSERT_EQ(met, 0);
    ASSERT_EQ(failed, 0);
    ASSERT_GE(took, 1);
    std::filesystem::remove(path());
  }
}

TEST_F(LeaseTest, WhatIsNoPlainFileIsAnError) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  const auto lease = take_lease(folder_, "GPU-1", "test");
  ASSERT_FALSE(lease.ok());
  EXPECT_NE(lease.error().message.find("no plain file"), std::string::npos);
}

TEST(Lease, AFolderThatCannotBeMadeIsAnError) {
  const auto lease = take_lease("/proc/derate", "GPU-1", "test");
  ASSERT_FALSE(lease.ok());
  EXPECT_NE(lease.error().message.find("/proc/derate"), std::string::npos);
}

}  // namespace
}  // namespace derate
