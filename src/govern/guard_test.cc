#include "govern/guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "govern/lease.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

void nap() {
  SystemClock real;
  real.sleep_until(real.now() + 5ms);
}

// Real processes: each test forks its guard, which forks its worker; what they do is left in files.
class GuardTest : public testing::Test {
 protected:
  // Lives until it is said that it goes on; its exit code is 5.
  pid_t start_command() {
    const pid_t command = ::fork();
    if (command != 0) return command;
    SystemClock real;
    for (int i = 0; i < 1000 && !noted("goes on"); ++i) real.sleep_until(real.now() + 10ms);
    ::_exit(5);
  }
  GuardTest() {
    options.run_folder = folder;
    options.owner = "test";
    options.silence = 500ms;
    hooks.left_over = [](pid_t) {
      return std::vector<DomainId>{gpu_domain("GPU-1"), gpu_domain("GPU-2")};
    };
    hooks.restore = [this](const DomainId& domain) {
      return note("restored " + short_name(domain));
    };
    hooks.log = Log([this](const LogRecord& record) { note(record.text); });
  }

  int note(const std::string& line) const {
    const UniqueFd file(
        ::open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    const std::string text = line + "\n";
    return ::write(file.get(), text.data(), text.size()) > 0 ? 0 : 1;
  }
  bool noted(const std::string& part) const {
    const auto text = read_file(folder + "/log");
    return text.ok() && text->find(part) != std::string::npos;
  }
  bool wait_until_noted(const std::string& part) {
    for (int i = 0; i < 1000 && !noted(part); ++i) clock.sleep_until(clock.now() + 10ms);
    return noted(part);
  }
  // Waits for a process that is not this one's child, until the test is over.
  void wait_for_the_end() const {
    while (std::filesystem::exists(folder) && !noted("over")) nap();
  }
  // Beats until the guard is gone (7) or `ends` returns true (0). A test that waits for something
  // that does not come fails after two minutes (8).
  int beat_until(GuardLink& link, const std::function<bool()>& ends) const {
    SystemClock real;
    const Instant patience = real.now() + 120s;
    while (!link.guard_gone() && !ends()) {
      if (real.now() > patience) return note("waited in vain") + 8;
      link.beat();
      real.sleep_until(real.now() + 20ms);
    }
    return link.guard_gone() ? note("guard gone") + 7 : 0;
  }
  GuardOutcome run() { return *run_guarded(options, hooks, clock); }

  const Folder home;
  const std::string folder = home.path();
  GuardOptions options;
  GuardHooks hooks;
  SystemClock clock;
};

TEST_F(GuardTest, AWorkerThatEndsWellLeavesItsCode) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.work = [](GuardLink& link) {
    link.ready();
    return 42;
  };
  const GuardOutcome outcome = run();
  EXPECT_EQ(outcome.exit_code, 42);
  EXPECT_FALSE(outcome.worker_failed);
  EXPECT_FALSE(noted("restored"));
}

TEST_F(GuardTest, EverySignalThatKillsTheWorkerIsFollowedByRestore) {
  for (const int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE}) {
    SCOPED_TRACE(signal);
    std::filesystem::remove(folder + "/log");
    hooks.work = [signal](GuardLink& link) {
      link.beat();
      std::signal(signal, SIG_DFL);  // a sanitizer would report it
      ::kill(::getpid(), signal);
      return 0;
    };
    const GuardOutcome outcome = run();
    EXPECT_EQ(outcome.exit_code, 128 + signal);
    EXPECT_TRUE(outcome.worker_failed);
    EXPECT_EQ(outcome.restored, (std::vector<DomainId>{gpu_domain("GPU-1"), gpu_domain("GPU-2")}));
    EXPECT_TRUE(noted("restored GPU-1") && noted("restored GPU-2"));
  }
}

TEST_F(GuardTest, AWorkerThatFallsSilentIsKilled) {
  hooks.work = [](GuardLink& link) {
    SystemClock real;
    link.beat();
    real.sleep_until(real.now() + 1h);
    return 0;
  };
  const GuardOutcome outcome = run();
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(noted("has said nothing for"));
  EXPECT_EQ(outcome.restored.size(), 2u);
}

TEST_F(GuardTest, AStoppedWorkerIsASilentOne) {
  hooks.work = [](GuardLink&) {
    ::kill(::getpid(), SIGSTOP);
    return 0;
  };
  EXPECT_EQ(run().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(noted("restored GPU-1"));
}

// A message may block on its reader; the restore of a GPU must not wait.
TEST_F(GuardTest, MessagesComeAfterTheRestore) {
  const auto first = [this](const std::string& a, const std::string& b) {
    const std::string text = *read_file(folder + "/log");
    return text.find(a) < text.find(b) && text.find(b) != std::string::npos;
  };
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGKILL); };
  run();
  EXPECT_TRUE(first("restored GPU-1", "was killed by signal 9"));
  std::filesystem::remove(folder + "/log");
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGSTOP); };
  run();
  EXPECT_TRUE(first("restored GPU-1", "has said nothing for"));
  EXPECT_TRUE(first("has said nothing for", "was killed by signal 9"));
}

// For fork(), pids.max and RLIMIT_NPROC are alike; root is exempt from the second.
TEST_F(GuardTest, WithoutProcessesTheDomainsAreRestoredInThisOne) {
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  const std::string seen = as_who_is_not_root([this] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NPROC, &none);
    if (const pid_t child = ::fork(); child >= 0) {
      if (child == 0) ::_exit(0);
      return std::string("there are processes");
    }
    std::string in;
    const auto restore = [&](const DomainId& domain) -> RestoreStep {
      in += short_name(domain) + " ";
      if (domain.name == "GPU-2") throw std::bad_alloc();
      // The steps that need the disk come after every device.
      return {domain.name == "GPU-3" ? 1 : 0, [&in] { return in += "disk ", 0; }};
    };
    const RestoreOutcome done = restore_side_by_side(
        {gpu_domain("GPU-1"), gpu_domain("GPU-2"), gpu_domain("GPU-3"), gpu_domain("GPU-4")},
        restore, 1s, clock);
    return in + std::to_string(done.restored.size()) + std::to_string(done.not_restored.size());
  });
  EXPECT_EQ(seen, "GPU-1 GPU-2 GPU-3 GPU-4 disk disk 22");
}

// The alarm ends a test that blocks, so that it fails.
class NotWaitedFor : public GuardTest {
 protected:
  NotWaitedFor() { ::alarm(30); }
  ~NotWaitedFor() override { ::alarm(0); }
};

TEST_F(NotWaitedFor, WhatTheWorkerHadBegunIsTidiedUpAfterTheRestore) {
  hooks.tidy = [this] {
    note("tidied");
    wait_for_the_end();
  };
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGKILL); };
  EXPECT_EQ(run().restored.size(), 2u);
  note("over");
  const std::string text = *read_file(folder + "/log");
  EXPECT_LT(text.find("restored GPU-2"), text.find("tidied"));
}

// The disk of the journals may not answer.
TEST_F(NotWaitedFor, WhoReadsWhatIsLeftAndAllThatWasHeldIsRestored) {
  hooks.left_over = [this](pid_t) {
    wait_for_the_end();
    return std::vector<DomainId>{};
  };
  hooks.work = [](GuardLink& link) {
    if (!link.lease(gpu_domain("GPU-1")).ok() || !link.lease(gpu_domain("GPU-3")).ok()) return 1;
    return ::kill(::getpid(), SIGKILL);
  };
  EXPECT_EQ(run().restored, (std::vector<DomainId>{gpu_domain("GPU-1"), gpu_domain("GPU-3")}));
  note("over");
}

// The file's disk may not answer.
TEST_F(NotWaitedFor, AFileThatMessagesGoTo) {
  hooks.log = Log([this](const LogRecord& record) {
    note(record.text);
    if (record.text == "ready") wait_for_the_end();
  });
  hooks.work = [this](GuardLink& link) {
    link.ready();
    beat_until(link, [this] { return noted("ready"); });
    return ::kill(::getpid(), SIGKILL);
  };
  const pid_t guard = ::fork();
  if (guard == 0) {
    const int file = ::open((folder + "/messages").c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDERR_FILENO);
    ::_exit(static_cast<int>(run().restored.size()));
  }
  int status = -1;
  ::waitpid(guard, &status, 0);
  note("over");
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

// After the worker's death its earlier messages are of no use and may take time.
TEST_F(GuardTest, OfADeadWorkersMessagesNothingIsDoneBeforeTheRestore) {
  hooks.ready = [this](std::string_view) { note("was ready"); };
  hooks.work = [this](GuardLink& link) {
    const pid_t guard = ::getppid(), worker = ::getpid();
    ::kill(guard, SIGSTOP);
    if (::fork() == 0) {
      while (::getppid() == worker) nap();
      ::kill(guard, SIGCONT);
      ::_exit(0);
    }
    link.ready();
    return ::kill(worker, SIGKILL);
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(static_cast<int>(run().restored.size()));
  int status = -1;
  ::waitpid(guard, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_FALSE(noted("was ready"));
}

// The guard itself may be held up while it looks at its leases.
TEST_F(GuardTest, BeatsThatLieUnreadAreHeard) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.each_second = [this] {
    if (!noted("looked")) clock.sleep_until(clock.now() + 700ms);
    note("looked");
    return std::string("seen");
  };
  hooks.work = [this](GuardLink& link) {
    const Instant begin = clock.now();
    return beat_until(link, [&] { return clock.now() - begin > 900ms; });
  };
  EXPECT_EQ(run().exit_code, 0);
  EXPECT_TRUE(noted("seen"));
}

TEST_F(GuardTest, ARestorerThatHangsIsGivenUpAndTheOthersAreDone) {
  options.restore_time = 300ms;
  hooks.restore = [this](const DomainId& domain) {
    SystemClock real;
    if (domain.name == "GPU-1") real.sleep_until(real.now() + 1h);
    return note("restored " + short_name(domain));
  };
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGKILL); };
  const GuardOutcome outcome = run();
  EXPECT_EQ(outcome.restored, std::vector<DomainId>{gpu_domain("GPU-2")});
  EXPECT_EQ(outcome.not_restored, std::vector<DomainId>{gpu_domain("GPU-1")});
}

TEST_F(GuardTest, ARestorerThatFailsIsToldOf) {
  hooks.restore = [](const DomainId& domain) { return domain.name == "GPU-1" ? 3 : 0; };
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGKILL); };
  EXPECT_EQ(run().not_restored, std::vector<DomainId>{gpu_domain("GPU-1")});
  EXPECT_TRUE(noted("not restored: GPU-1"));
}

// A worker that ends by itself and forgets a GPU is no better than one that was killed.
TEST_F(GuardTest, WhatAWorkerForgotIsRestoredToo) {
  hooks.work = [](GuardLink&) { return 0; };
  const GuardOutcome outcome = run();
  EXPECT_TRUE(outcome.worker_failed);
  EXPECT_EQ(outcome.restored.size(), 2u);
}

TEST_F(GuardTest, LeasesAreHeldByBothAndTheSecondGovernorIsToldWho) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.work = [this](GuardLink& link) {
    const auto first = link.lease(gpu_domain("GPU-1"));
    if (!first.ok()) return 1;
    const auto second = take_lease(folder, "GPU-1", "second");
    if (second.ok() || second.error().code != Errc::busy) return 2;
    if (second.error().message.find("governed by test, pid") == std::string::npos) return 3;
    const auto refused = link.lease(gpu_domain("GPU-1"));
    if (refused.ok() || refused.error().code != Errc::busy) return 4;
    link.release(gpu_domain("GPU-1"));
    link.release(gpu_domain("GPU-1"));
    if (!link.lease(gpu_domain("GPU-2")).ok()) return 5;
    // The worker's own descriptor still holds the first one.
    return take_lease(folder, "GPU-1", "third").ok() ? 6 : 0;
  };
  EXPECT_EQ(run().exit_code, 0);
  EXPECT_TRUE(take_lease(folder, "GPU-1", "later").ok());
}

// A clean-up of the run folder must not let a second governor in.
TEST_F(GuardTest, ALeaseWhoseFileIsRemovedIsTakenAnewByBoth) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.work = [this](GuardLink& link) {
    const auto lease = link.lease(gpu_domain("GPU-1"));
    if (!lease.ok() || !link.lease(gpu_domain("GPU-2")).ok()) return 1;
    std::filesystem::remove(folder + "/GPU-1.lock");
    beat_until(link, [this] { return noted("GPU-1: its lease was removed"); });
    link.beat();
    if (take_lease(folder, "GPU-1", "second").ok()) return 2;
    note("taken anew");
    const int code = beat_until(link, [] { return false; });
    note(take_lease(folder, "GPU-1", "x").ok() ? "lease lost" : "lease kept");
    return code;
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  ASSERT_TRUE(wait_until_noted("taken anew"));
  ::kill(guard, SIGKILL);
  ::waitpid(guard, nullptr, 0);
  EXPECT_TRUE(wait_until_noted("lease kept"));
}

// The worker may not have written to the GPU yet, so no journal keeps the other governor away.
TEST_F(GuardTest, TheWorkerHearsOfALeaseThatSomebodyElseHasNow) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.work = [this](GuardLink& link) {
    const auto lease = link.lease(gpu_domain("GPU-1"));
    if (!lease.ok() || !link.lease(gpu_domain("GPU-2")).ok()) return 1;
    // One step: between a removal and a second governor's lease the guard could take its own anew.
    const Folder elsewhere;
    const auto other = take_lease(elsewhere.path(), "GPU-1", "second");
    if (!other.ok()) return 3;
    std::filesystem::rename(elsewhere.path() + "/GPU-1.lock", folder + "/GPU-1.lock");
    std::vector<DomainId> lost;
    beat_until(link, [&] {
      lost = link.take_lost();
      return !lost.empty();
    });
    return lost == std::vector{gpu_domain("GPU-1")} ? 0 : 2;
  };
  EXPECT_EQ(run().exit_code, 0);
}

TEST_F(GuardTest, AWorkerWhoseGuardIsKilledIsToldAndKeepsItsLease) {
  hooks.work = [this](GuardLink& link) {
    const auto lease = link.lease(gpu_domain("GPU-1"));
    note("working");
    const int code = beat_until(link, [] { return false; });
    note(take_lease(folder, "GPU-1", "x").ok() ? "lease lost" : "lease kept");
    return code;
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  ASSERT_TRUE(wait_until_noted("working"));
  ::kill(guard, SIGKILL);
  ::waitpid(guard, nullptr, 0);
  EXPECT_TRUE(wait_until_noted("guard gone"));
  EXPECT_TRUE(wait_until_noted("lease kept"));
}

TEST_F(GuardTest, StopSignalsArePassedOn) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.work = [this](GuardLink& link) {
    static volatile std::sig_atomic_t stopped;
    stopped = 0;
    std::signal(SIGTERM, [](int) { stopped = 1; });
    note("working");
    return beat_until(link, [] { return stopped != 0; });
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  ASSERT_TRUE(wait_until_noted("working"));
  ::kill(guard, SIGTERM);
  int status = -1;
  ::waitpid(guard, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(GuardTest, AWorkerThatDoesNotStopInTimeIsKilled) {
  options.stop_time = 300ms;
  hooks.work = [this](GuardLink& link) {
    std::signal(SIGTERM, SIG_IGN);
    note("working");
    return beat_until(link, [] { return false; });
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  ASSERT_TRUE(wait_until_noted("working"));
  ::kill(guard, SIGTERM);
  int status = -1;
  ::waitpid(guard, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
  EXPECT_TRUE(noted("has not stopped"));
  EXPECT_TRUE(noted("restored GPU-2"));
}

TEST_F(GuardTest, TheCommandOfAKilledWorkerRunsOnAndGivesItsCode) {
  options.adopt = true;
  hooks.work = [this](GuardLink& link) {
    const pid_t command = start_command();
    link.started(command);
    return ::kill(::getpid(), SIGKILL);
  };
  const pid_t guard = ::fork();  // being a subreaper is for life: not in the test's own process
  if (guard == 0) ::_exit(run().exit_code);
  int status = -1;
  ::waitpid(guard, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_TRUE(noted("goes on"));
}

// Killed in the instant between starting it and telling.
TEST_F(GuardTest, ACommandThatTheGuardWasNotToldOfIsFound) {
  options.adopt = true;
  hooks.work = [this](GuardLink&) {
    start_command();
    return ::kill(::getpid(), SIGKILL);
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  int status = -1;
  ::waitpid(guard, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 5);
}

TEST_F(GuardTest, ACommandThatEndedBeforeItsWorkerWasKilledGivesItsCode) {
  options.adopt = true;
  hooks.work = [](GuardLink& link) {
    const pid_t command = ::fork();
    if (command == 0) ::_exit(5);
    link.started(command);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(command), &info, WEXITED | WNOWAIT);
    return ::kill(::getpid(), SIGKILL);
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  int status = -1;
  ::waitpid(guard, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_FALSE(noted("goes on"));
}

TEST_F(GuardTest, ASignalThatCameWhileItRestoredDoesNotCostTheExitCode) {
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGKILL); };
  hooks.restore = [](const DomainId&) { return ::kill(::getppid(), SIGTERM); };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  int status = -1;
  ::waitpid(guard, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
}

// A signal after the last was read, before the process has ended.
TEST_F(GuardTest, ASignalAtTheEndOfAProcessDoesNotCostTheExitCode) {
  options.ends_process = true;
  hooks.work = [](GuardLink&) { return 0; };
  const pid_t guard = ::fork();
  if (guard == 0) {
    const int code = run().exit_code;
    ::kill(::getpid(), SIGTERM);
    ::_exit(code);
  }
  int status = -1;
  ::waitpid(guard, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(GuardTest, AWorkerKilledBeforeItsCommandHasLostIt) {
  options.adopt = true;
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGKILL); };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().child_lost ? 1 : 0);
  int status = -1;
  ::waitpid(guard, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(GuardTest, WhatWouldEndAProcessDoesNotEndOneThatRestores) {
  hooks.work = [](GuardLink&) { return ::kill(::getpid(), SIGKILL); };
  hooks.restore = [](const DomainId&) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::kill(::getpid(), signal);
    return 0;
  };
  EXPECT_EQ(run().not_restored, std::vector<DomainId>{});
}

// --- a worker whose end does not come to an end --------------------------------------------------

// A debugger holds one of the worker's threads at its exit, as a driver or a disk holds a thread in
// a call that cannot be killed: the process is dead and cannot be reaped.
class HeldThread : public GuardTest {
 protected:
  HeldThread() { options.silence = 20s; }
  ~HeldThread() override { note("over"); }

  // False: this user may not debug here.
  bool hold_a_thread() {
    int to_debugger[2], from_debugger[2];
    if (::pipe(to_debugger) != 0 || ::pipe(from_debugger) != 0) return false;
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    if (::fork() == 0) {
      pid_t thread = 0;
      (void)!::read(to_debugger[0], &thread, sizeof thread);
      const bool held = ::ptrace(PTRACE_SEIZE, thread, nullptr, PTRACE_O_TRACEEXIT) == 0;
      (void)!::write(from_debugger[1], &held, sizeof held);
      if (held) wait_for_the_end();
      ::_exit(0);
    }
    std::thread([to = to_debugger[1]] {
      const pid_t self = ::gettid();
      (void)!::write(to, &self, sizeof self);
      while (true) ::pause();
    }).detach();
    bool held = false;
    (void)!::read(from_debugger[0], &held, sizeof held);
    if (!held) note("not held");
    return held;
  }
};

TEST_F(HeldThread, AWorkerThatWasKilledIsGone) {
  hooks.work = [this](GuardLink&) { return hold_a_thread() ? ::kill(::getpid(), SIGKILL) : 0; };
  const GuardOutcome outcome = run();
  if (noted("not held")) GTEST_SKIP() << "nobody may debug here";
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_EQ(outcome.restored.size(), 2u);
  EXPECT_TRUE(noted("one of its threads hangs in a call"));
  EXPECT_FALSE(noted("has said nothing"));
}

TEST_F(HeldThread, AWorkerThatEndedLeavesItsCode) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.work = [this](GuardLink&) { return hold_a_thread() ? 42 : 0; };
  const GuardOutcome outcome = run();
  if (noted("not held")) GTEST_SKIP() << "nobody may debug here";
  EXPECT_EQ(outcome.exit_code, 42);
  EXPECT_FALSE(outcome.worker_failed);
}

TEST_F(HeldThread, TheCommandOfAKilledWorkerGivesItsCode) {
  options.adopt = true;
  hooks.work = [this](GuardLink& link) {
    if (!hold_a_thread()) return 0;
    link.started(start_command());
    return ::kill(::getpid(), SIGKILL);
  };
  const pid_t guard = ::fork();
  if (guard == 0) ::_exit(run().exit_code);
  int status = -1;
  ::waitpid(guard, &status, 0);
  if (noted("not held")) GTEST_SKIP() << "nobody may debug here";
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_TRUE(noted("goes on"));
}

// --- the line between them -----------------------------------------------------------------------

std::string file_of(const UniqueFd& fd) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd.get()), error)
      .filename();
}

// Sends `signal` to the process each `every`, until the scope ends.
class SignalStorm {
 public:
  SignalStorm(pid_t victim, int signal, Duration every) {
    process_ = ::fork();
    if (process_ != 0) return;
    SystemClock real;
    while (::kill(victim, signal) == 0) real.sleep_until(real.now() + every);
    ::_exit(0);
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;
  ~SignalStorm() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

 private:
  pid_t process_;
};

void hear_without_restart(int signal) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(signal, &action, nullptr);
}

// Stops the process now and lets it go on after a while.
void stop_for(pid_t process, Duration time) {
  ::kill(process, SIGSTOP);
  if (::fork() != 0) return;
  SystemClock real;
  real.sleep_until(real.now() + time);
  ::kill(process, SIGCONT);
  ::_exit(0);
}

TEST_F(GuardTest, LeasesAreThoseThatWereAskedForWhateverSignalsCome) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  options.silence = 10s;
  hooks.work = [this](GuardLink& link) {
    hear_without_restart(SIGUSR1);
    const SignalStorm storm(::getpid(), SIGUSR1, 100us);
    for (int i = 0; i < 200; ++i) {
      const std::string uuid = "GPU-" + std::to_string(i % 7);
      if (i % 20 == 0) stop_for(::getppid(), 30ms);
      const auto lease = link.lease(gpu_domain(uuid));
      if (!lease.ok()) return note(lease.error().message) + 1;
      if (file_of(*lease) != uuid + ".lock") return note(uuid + ": " + file_of(*lease)) + 2;
      link.release(gpu_domain(uuid));
    }
    return 0;
  };
  EXPECT_EQ(run().exit_code, 0) << *read_file(folder + "/log");
}

// What was asked for and given up is not taken for the answer to the next question.
TEST_F(GuardTest, AnAnswerThatComesTooLateIsNoAnswerToAnotherQuestion) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  options.silence = 60s;
  hooks.work = [this](GuardLink& link) {
    stop_for(::getppid(), GuardLink::kReplyTime + 300ms);
    const auto late = link.lease(gpu_domain("GPU-1"));
    if (late.ok() || late.error().code != Errc::io) return 1;
    const auto second = link.lease(gpu_domain("GPU-2"));
    if (!second.ok() || file_of(*second) != "GPU-2.lock") return 2;
    // The guard has let go of what nobody waited for.
    const auto first = link.lease(gpu_domain("GPU-1"));
    if (!first.ok()) return note(first.error().message) + 3;
    return file_of(*first) == "GPU-1.lock" ? 0 : 4;
  };
  EXPECT_EQ(run().exit_code, 0);
}

// A guard that does not read for a while is told all the same.
TEST_F(GuardTest, WhatTheLineHasNoRoomForIsSaidLater) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.ready = [this](std::string_view) { note("ready"); };
  options.silence = 60s;
  hooks.work = [this](GuardLink& link) {
    auto lease = link.lease(gpu_domain("GPU-1"));
    if (!lease.ok()) return 1;
    const pid_t guard = ::getppid();
    ::kill(guard, SIGSTOP);
    for (int i = 0; i < 10'000; ++i) link.beat();
    link.ready();
    *lease = UniqueFd();
    link.release(gpu_domain("GPU-1"));
    const bool held = !take_lease(folder, "GPU-1", "second").ok();
    ::kill(guard, SIGCONT);
    SystemClock real;
    for (int i = 0; i < 500; ++i) {
      link.beat();
      if (noted("ready") && take_lease(folder, "GPU-1", "second").ok()) return held ? 0 : 2;
      real.sleep_until(real.now() + 10ms);
    }
    return 3;
  };
  EXPECT_EQ(run().exit_code, 0);
}

TEST_F(GuardTest, BeatsFitIntoEverySilence) {
  for (const Duration silence : {Duration(500ms), Duration(10s), Duration(600s)}) {
    const GuardLink link(UniqueFd{}, folder, silence);
    EXPECT_LE(4 * link.beat_every(), silence);
    EXPECT_LE(link.beat_every(), 1s);
    EXPECT_GT(link.beat_every(), Duration::zero());
  }
}

TEST_F(GuardTest, AUuidThatDoesNotFitIsRefusedAndNotCut) {
  hooks.left_over = [](pid_t) { return std::vector<DomainId>{}; };
  hooks.work = [](GuardLink& link) {
    const auto lease = link.lease(gpu_domain(std::string(200, 'x')));
    return !lease.ok() && lease.error().code == Errc::invalid_argument ? 0 : 1;
  };
  EXPECT_EQ(run().exit_code, 0);
}

}  // namespace
}  // namespace derate
