#include "service/transport/passed_files.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <cstring>
#include <filesystem>
#include <string>

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

// What comes after it waits, too; who calls does not.
TEST(FileCloser, WaitsForAPeerInsteadOfItsCaller) {
  FileCloser closer;
  Connection slow = lingering(), next = pipe_of_two();
  closer.close(std::move(slow.ours));
  closer.close(std::move(next.ours));
  EXPECT_FALSE(hung_up(next.theirs, 200ms));
  slow.theirs = UniqueFd();  // with data unread: the connection is reset, and nothing lingers
  EXPECT_TRUE(hung_up(next.theirs, 30s));
}

TEST(FileCloser, SaysWhenNothingMoreShouldCome) {
  FileCloser closer;
  Connection slow = lingering();
  closer.close(std::move(slow.ours));
  for (std::size_t i = 1; i < FileCloser::kFull; ++i) {
    EXPECT_FALSE(closer.is_full());
    closer.close(std::move(pipe_of_two().ours));
  }
  EXPECT_TRUE(closer.is_full());
  slow.theirs = UniqueFd();
  SystemClock clock;
  for (int i = 0; i < 3000 && closer.is_full(); ++i) clock.sleep_until(clock.now() + 10ms);
  EXPECT_FALSE(closer.is_full());
}

// A message that nobody has read holds the file, and so does the end of its connection.
TEST(FileCloser, HangsUpOnAConnectionWithAFileUnread) {
  FileCloser closer;
  Connection slow = lingering();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd server(ends[0]), client(ends[1]);
  char byte = 'x';
  iovec text{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = slow.ours.get();
  std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  ASSERT_EQ(::sendmsg(client.get(), &message, 0), 1);
  slow.ours = UniqueFd();  // the message has the last reference
  closer.hang_up(std::move(server));
  Connection next = pipe_of_two();
  closer.close(std::move(next.ours));
  EXPECT_FALSE(hung_up(next.theirs, 200ms));
  slow.theirs = UniqueFd();
  EXPECT_TRUE(hung_up(next.theirs, 30s));
}

}  // namespace
}  // namespace derate
