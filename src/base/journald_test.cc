#include "base/journald.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/test_folder.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/unix_address.h"

namespace derate {
namespace {

// In journald's place: a datagram socket, to which messages go as sd_journal_sendv(3) sends them,
// each part a line. sd-journal itself knows one path alone.
int journal_socket = -1;

int send_datagram(const iovec* parts, int count) {
  std::string message;
  for (int i = 0; i < count; ++i)
    message += std::string(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len) + "\n";
  return ::send(journal_socket, message.data(), message.size(), 0) < 0 ? -1 : 0;
}
int fail_to_send(const iovec*, int) { return -1; }

// One who does not read holds up nobody: what finds no room is not sent.
TEST(JournaldSocket, DoesNotWait) {
  const Folder folder;
  const std::string path = folder.file("socket");
  const auto send = journald_socket(path);
  char text[] = "MESSAGE=a";
  const iovec part{text, sizeof text - 1};
  EXPECT_LT(send(&part, 1), 0);  // nobody is there
  const UniqueFd journald(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = *address_of(path);
  ASSERT_EQ(::bind(journald.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  int sent = 0;
  while (send(&part, 1) == 0 && sent < 100'000) ++sent;
  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, 100'000);
  std::array<char, 64> buffer{};
  const auto size = ::recv(journald.get(), buffer.data(), buffer.size(), 0);
  EXPECT_EQ(std::string(buffer.data(), static_cast<std::size_t>(size)), "MESSAGE=a\n");
  EXPECT_EQ(send(&part, 1), 0);
}

class Journald : public testing::Test {
 protected:
  Journald() {
    int pair[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
    ours_ = UniqueFd(pair[0]);
    theirs_ = UniqueFd(pair[1]);
    journal_socket = ours_.get();
  }
  // The next message's lines.
  std::vector<std::string> next() const {
    std::array<char, 4096> buffer{};
    const auto size = ::recv(theirs_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    std::vector<std::string> out;
    if (size <= 0) return out;
    for (const auto line : split({buffer.data(), static_cast<std::size_t>(size)}, '\n'))
      if (!line.empty()) out.emplace_back(line);
    return out;
  }
  static bool has(const std::vector<std::string>& lines, const std::string& line) {
    return std::count(lines.begin(), lines.end(), line) == 1;
  }
  static LogWriter writer() {
    return [send = journald_writer("derated", send_datagram)](const LogRecord& record) {
      EXPECT_TRUE(send(record));
    };
  }

 private:
  UniqueFd ours_, theirs_;
};

TEST_F(Journald, AMessageHasItsFields) {
  Log(writer()).warning("GPU 1 is lost", {{"gpu", "GPU-1"}, {"pid", 17}});
  const auto lines = next();
  EXPECT_EQ(lines.size(), 7u);
  EXPECT_TRUE(has(lines, "MESSAGE=GPU 1 is lost"));
  EXPECT_TRUE(has(lines, "SYSLOG_IDENTIFIER=derated"));
  EXPECT_TRUE(has(lines, "DERATE_GPU=GPU-1"));
  EXPECT_TRUE(has(lines, "DERATE_PID=17"));
  EXPECT_TRUE(has(lines, fmt::format("CODE_LINE={}", __LINE__ - 7)));
}

TEST_F(Journald, LevelsAreSyslogsPriorities) {
  const Log log(writer());
  log.debug("x");
  log.info("x");
  log.warning("x");
  log.error("x");
  for (const char* priority : {"PRIORITY=7", "PRIORITY=6", "PRIORITY=4", "PRIORITY=3"})
    EXPECT_TRUE(has(next(), priority)) << priority;
}

// A line end in a value would begin a field of its own.
TEST_F(Journald, NoTextOrValueAddsAField) {
  Log(writer()).info("x\nPRIORITY=0\nDERATE_UID=0", {{"job", "y\nDERATE_UID=0\n_PID=1"}});
  const auto lines = next();
  EXPECT_EQ(lines.size(), 6u);
  EXPECT_TRUE(has(lines, "MESSAGE=x\\x0aPRIORITY=0\\x0aDERATE_UID=0"));
  EXPECT_TRUE(has(lines, "PRIORITY=6"));
  EXPECT_TRUE(has(lines, "DERATE_JOB=y\\x0aDERATE_UID=0\\x0a_PID=1"));
}

// Standard error as systemd connects it: here a file, named by its device and inode.
class StderrOfJournal : public Journald {
 protected:
  StderrOfJournal() : kept_(::dup(STDERR_FILENO)), file_(std::tmpfile()) {
    ::dup2(::fileno(file_), STDERR_FILENO);
    struct stat known {};
    ::fstat(STDERR_FILENO, &known);
    stream_ = fmt::format("{}:{}", known.st_dev, known.st_ino);
    ::setenv("JOURNAL_STREAM", stream_.c_str(), 1);
  }
  ~StderrOfJournal() override {
    ::unsetenv("JOURNAL_STREAM");
    ::dup2(kept_.get(), STDERR_FILENO);
    std::fclose(file_);
  }
  std::string on_stderr() const {
    std::array<char, 4096> buffer{};
    const auto size = ::pread(::fileno(file_), buffer.data(), buffer.size(), 0);
    return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }
  std::string stream_;

 private:
  UniqueFd kept_;
  std::FILE* file_;
};

TEST_F(StderrOfJournal, MessagesGoToJournald) {
  program_log("derated", journald_writer("derated", send_datagram)).error("not restored");
  EXPECT_TRUE(has(next(), "MESSAGE=not restored"));
  EXPECT_EQ(on_stderr(), "");
}

TEST_F(StderrOfJournal, WhatCannotBeSentGoesToStandardError) {
  program_log("derated", journald_writer("derated", fail_to_send)).error("not restored");
  EXPECT_EQ(on_stderr(), "derated: not restored\n");
}

// $JOURNAL_STREAM is inherited by who has another standard error.
TEST_F(StderrOfJournal, AnotherStreamIsNotTheJournal) {
  for (const std::string& other : {stream_ + "0", std::string("8:1"), std::string()}) {
    ::setenv("JOURNAL_STREAM", other.c_str(), 1);
    EXPECT_FALSE(stderr_is_journald()) << other;
  }
  program_log("derated", journald_writer("derated", send_datagram)).error("not restored");
  EXPECT_EQ(on_stderr(), "derated: not restored\n");
  EXPECT_TRUE(next().empty());
}

}  // namespace
}  // namespace derate
