#include "base/write_now.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "base/outermost.h"
#include "base/service_notice.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/unix_address.h"

namespace derate {
namespace {

// The alarm ends a test that blocks, so that it fails.
class WriteNow : public testing::Test {
 protected:
  WriteNow() { ::alarm(60); }
  ~WriteNow() override { ::alarm(0); }
};

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader = UniqueFd(ends[0]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // of this end alone
    writer = UniqueFd(ends[1]);
  }
  std::string read() const {
    char buffer[65536];
    const ssize_t n = ::read(reader.get(), buffer, sizeof buffer);
    return {buffer, n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  UniqueFd reader, writer;
};

// The descriptor stays without O_NONBLOCK: the governed command shares it.
TEST_F(WriteNow, AFullPipeIsNotWaitedFor) {
  const Pipe pipe;
  const std::string block(4096, 'x');
  int written = 0;
  while (write_now(pipe.writer.get(), block)) ++written;
  EXPECT_GT(written, 0);
  EXPECT_EQ(::fcntl(pipe.writer.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_FALSE(write_now(pipe.writer.get(), "line\n"));
  (void)pipe.read();
  EXPECT_TRUE(write_now(pipe.writer.get(), "line\n"));
}

TEST_F(WriteNow, APipeTakesAllOrNothing) {
  const Pipe pipe;
  EXPECT_FALSE(write_now(pipe.writer.get(), std::string(PIPE_BUF + 1, 'x')) &&
               pipe.read().size() > PIPE_BUF);
}

TEST_F(WriteNow, APipeWithoutAReaderIsNoFailureOfThisProcess) {
  Pipe pipe;
  pipe.reader = UniqueFd();
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  EXPECT_FALSE(write_now(pipe.writer.get(), "line\n"));
  std::signal(SIGPIPE, before);
}

TEST_F(WriteNow, AStoppedTerminalIsNotWaitedFor) {
  const UniqueFd keyboard(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(keyboard.valid() && ::grantpt(keyboard.get()) == 0 &&
              ::unlockpt(keyboard.get()) == 0);
  const UniqueFd terminal(::open(::ptsname(keyboard.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.valid());
  EXPECT_TRUE(write_now(terminal.get(), "line\n"));
  ASSERT_EQ(::tcflow(terminal.get(), TCOOFF), 0);
  EXPECT_FALSE(write_now(terminal.get(), "line\n"));
  ASSERT_EQ(::tcflow(terminal.get(), TCOON), 0);
  EXPECT_TRUE(write_now(terminal.get(), "line\n"));
  // Nobody reads the terminal: text that does not fit is dropped.
  for (int i = 0; i < 200; ++i) (void)write_now(terminal.get(), std::string(1000, 'x') + "\n");
}

// As after su: the terminal belongs to another user, and its path cannot be opened.
TEST_F(WriteNow, AnotherUsersTerminalIsNotWaitedFor) {
  if (::geteuid() != 0) GTEST_SKIP() << "becomes another user, which root may";
  const UniqueFd keyboard(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(keyboard.valid() && ::grantpt(keyboard.get()) == 0 &&
              ::unlockpt(keyboard.get()) == 0);
  const UniqueFd terminal(::open(::ptsname(keyboard.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  const std::string seen = as_user(kNobody, [&] {
    ::alarm(30);
    ::setsid();
    if (::ioctl(terminal.get(), TIOCSCTTY, 0) != 0) return std::string("no terminal of its own");
    int taken = 0;
    for (int i = 0; i < 200; ++i) taken += write_now(terminal.get(), std::string(1000, 'x'));
    return std::string(taken > 0 ? "some" : "none");
  });
  EXPECT_EQ(seen, "some");
}

TEST_F(WriteNow, ALongTextGoesOnAsThereIsRoomUntilSomebodyEndsIt) {
  const Pipe pipe;
  const std::string text(300'000, 'x');
  std::size_t read = 0;
  FakeClock clock;
  const auto reads = [&] {
    for (std::string part = pipe.read(); !part.empty(); part = pipe.read()) read += part.size();
    return true;
  };
  EXPECT_TRUE(write_while(pipe.writer.get(), text, clock, reads));
  reads();
  EXPECT_EQ(read, text.size());
  int asked = 0;
  EXPECT_FALSE(write_while(pipe.writer.get(), text, clock, [&] { return ++asked < 10; }));
  EXPECT_EQ(asked, 10);
}

TEST_F(WriteNow, WhereNobodyReadsAnyMoreALongTextEnds) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.reader = UniqueFd();
  FakeClock clock;
  EXPECT_FALSE(write_while(pipe.writer.get(), "text", clock, [] { return true; }));
  std::signal(SIGPIPE, before);
}

TEST_F(WriteNow, AFullSocketIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd ours(ends[0]), theirs(ends[1]);
  while (write_now(ours.get(), std::string(4096, 'x'))) continue;
  theirs = UniqueFd();
  EXPECT_FALSE(write_now(ours.get(), "line\n"));
}

TEST_F(WriteNow, AFileAtItsSizeLimitIsNoFailureOfThisProcess) {
  const Folder folder;
  const std::string path = folder.file("log");
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{8, 8};
    ::setrlimit(RLIMIT_FSIZE, &most);
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    const bool first = write_now(file.get(), "12345678"), second = write_now(file.get(), "9");
    ::_exit(first && !second ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(WriteNow, WhatWasLeftOutIsCountedInTheNextLine) {
  const Pipe pipe;
  LineWriter lines("derated", pipe.writer.get());
  lines.write("first");
  EXPECT_EQ(pipe.read(), "derated: first\n");
  while (write_now(pipe.writer.get(), std::string(4096, 'x'))) continue;
  lines.write("second");
  lines.write("third");
  EXPECT_EQ(lines.left_out(), 2u);
  while (!pipe.read().empty()) continue;
  lines.write("fourth");
  EXPECT_EQ(pipe.read(),
            "derated: 2 lines were left out: standard error did not take them\n"
            "derated: fourth\n");
  lines.write("fifth");
  EXPECT_EQ(pipe.read(), "derated: fifth\n");
}

// --- what systemd is sent ------------------------------------------------------------------------

struct NotifySocket {
  explicit NotifySocket(const std::string& path)
      : socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const auto address = *address_of(path);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~NotifySocket() { ::unsetenv("NOTIFY_SOCKET"); }
  std::string read() const {
    char buffer[256];
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    return {buffer, n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  UniqueFd socket;
};

TEST_F(WriteNow, ANotifySocketThatNobodyReadsIsNotWaitedFor) {
  const Folder folder;
  const NotifySocket systemd(folder.file("notify"));
  int sent = 0;
  while (notify_service("WATCHDOG=1")) ++sent;
  EXPECT_GT(sent, 0);
  ServiceNotices notices;
  notices.ready("governs GPU 0");
  while (!systemd.read().empty()) continue;
  // The notice that could not be sent is sent now.
  notices.alive();
  EXPECT_EQ(systemd.read(), "READY=1\nSTATUS=governs GPU 0");
  EXPECT_EQ(systemd.read(), "WATCHDOG=1");
  notices.alive();
  EXPECT_EQ(systemd.read(), "WATCHDOG=1");
  // The same for a service without a watchdog.
  while (notify_service("WATCHDOG=1")) continue;
  notices.ready();
  EXPECT_FALSE(notices.send_owed());
  while (!systemd.read().empty()) continue;
  EXPECT_TRUE(notices.send_owed());
  EXPECT_EQ(systemd.read(), "READY=1");
}

TEST_F(WriteNow, WithoutANotifySocketNothingIsOwed) {
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(notify_service("READY=1"));
}

// --- what a machine does not give ----------------------------------------------------------------

TEST_F(WriteNow, AMachineWithoutThreadsOrMemoryIsNoBug) {
  const auto code_of = [](auto thrown) {
    return run_outermost("derate", [&]() -> int { throw thrown; });
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(code_of(std::system_error(EAGAIN, std::generic_category())), 74);
  EXPECT_EQ(code_of(std::bad_alloc()), 74);
  EXPECT_EQ(code_of(std::system_error(EINVAL, std::generic_category())), exit_code::kInternalError);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("derate: no thread is to be had"), std::string::npos) << text;
  EXPECT_NE(text.find("derate: no memory is to be had"), std::string::npos) << text;
}

}  // namespace
}  // namespace derate
