#include "service/transport/passed_files.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

struct Connection {
  UniqueFd ours, theirs;
};

// Its close waits for the peer to take what was sent, up to ten minutes.
Connection lingering() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  CHECK(::bind(listener.get(), at, size) == 0 && ::listen(listener.get(), 1) == 0);
  CHECK(::getsockname(listener.get(), at, &size) == 0);
  Connection out{UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), UniqueFd()};
  CHECK(::connect(out.ours.get(), at, size) == 0);
  out.theirs = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger wait{.l_onoff = 1, .l_linger = 600};
  CHECK(::setsockopt(out.ours.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait) == 0);
  const std::string much(1 << 16, 'x');
  while (::send(out.ours.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
  }
  return out;
}

bool hung_up(const UniqueFd& end, std::chrono::milliseconds patience) {
  pollfd wanted{end.get(), POLLIN, 0};
  return ::poll(&wanted, 1, static_cast<int>(patience.count())) == 1 &&
         (wanted.revents & POLLHUP) != 0;
}

Connection pipe_of_two() {
  int ends[2];
  CHECK(::pipe(ends) == 0);
  return {UniqueFd(ends[1]), UniqueFd(ends[0])};
}

constexpr uid_t kAnn = 1000, kBob = 1001;
constexpr int kMany = 40;  // more than there are threads

// A message whose file is the last reference to what was passed.
void send_with(const UniqueFd& to, UniqueFd file) {
  char byte = 'x';
  iovec text{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = file.get();
  std::memcpy(CMSG_DATA(rights), &number, sizeof number);
  CHECK(::sendmsg(to.get(), &message, 0) == 1);
}

Connection pair_of(int type) {
  int ends[2];
  CHECK(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

TEST(FileCloser, NobodyIsWaitedForByWayOfLinger) {
  FileCloser closer;
  std::vector<UniqueFd> peers;
  for (int i = 0; i < kMany; ++i) {
    Connection slow = lingering();
    closer.close(std::move(slow.ours), kAnn);
    peers.push_back(std::move(slow.theirs));
  }
  Connection next = pipe_of_two();
  closer.close(std::move(next.ours), kAnn);
  EXPECT_TRUE(hung_up(next.theirs, 10s));
}

// To close a socket closes what is in its queue: no option of that one can be set before.
TEST(FileCloser, NorByWayOfASocketInTheQueueOfASocket) {
  FileCloser closer;
  std::vector<UniqueFd> peers;
  for (int i = 0; i < kMany; ++i) {
    Connection slow = lingering(), box = pair_of(SOCK_STREAM);
    send_with(box.theirs, std::move(slow.ours));
    peers.push_back(std::move(slow.theirs));
    if (i % 2 == 0)
      closer.close(std::move(box.ours), kAnn);
    else
      closer.hang_up(std::move(box.ours));  // a connection of ours with a message unread
  }
  Connection file = pipe_of_two(), socket = pipe_of_two();
  closer.close(std::move(file.ours), kAnn);
  closer.close_socket(std::move(socket.ours));
  EXPECT_TRUE(hung_up(file.theirs, 10s));
  EXPECT_TRUE(hung_up(socket.theirs, 10s));
}

// As a FUSE file does, whose process does not answer.
TEST(FileCloser, FilesThatAreStuckAreTheirPersonsTrouble) {
  auto answered = std::make_shared<std::atomic<bool>>(false);
  FileCloser closer([answered](UniqueFd file) {
    struct stat info {};
    ::fstat(file.get(), &info);
    SystemClock clock;
    while (S_ISSOCK(info.st_mode) && !answered->load()) clock.sleep_until(clock.now() + 1ms);
  });
  for (std::size_t i = 0; i < FileCloser::kMostOfOne; ++i) {
    EXPECT_FALSE(closer.is_full(kAnn));
    closer.close(std::move(pair_of(SOCK_STREAM).ours), kAnn);
  }
  EXPECT_TRUE(closer.is_full(kAnn));
  EXPECT_TRUE(closer.has_full());
  EXPECT_FALSE(closer.is_full(kBob));
  Connection next = pipe_of_two();
  closer.close(std::move(next.ours), kBob);
  EXPECT_TRUE(hung_up(next.theirs, 10s));
  answered->store(true);
  SystemClock clock;
  for (int i = 0; i < 1000 && closer.has_full(); ++i) clock.sleep_until(clock.now() + 10ms);
  EXPECT_FALSE(closer.has_full());
}

TEST(FileCloser, DropsAMessageWithItsFileAndNoOther) {
  FileCloser closer;
  Connection slow = lingering(), box = pair_of(SOCK_DGRAM);
  send_with(box.theirs, std::move(slow.ours));
  ASSERT_EQ(::send(box.theirs.get(), "second", 6, 0), 6);
  closer.drop_message(box.ours);
  SystemClock clock;
  for (int i = 0; i < 1000 && closer.is_dropping(); ++i) clock.sleep_until(clock.now() + 10ms);
  ASSERT_FALSE(closer.is_dropping());
  char text[16];
  EXPECT_EQ(::recv(box.ours.get(), text, sizeof text, 0), 6);
}

}  // namespace
}  // namespace derate
