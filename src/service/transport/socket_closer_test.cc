#include "service/transport/socket_closer.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "service/transport/test_passed_files.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using Where = SocketCloser::Where;

constexpr uid_t kAnn = 1000, kBob = 1001;
constexpr int kMany = 40;  // more than there are threads

bool hung_up(const UniqueFd& end, std::chrono::milliseconds patience) {
  pollfd wanted{end.get(), POLLIN, 0};
  return ::poll(&wanted, 1, static_cast<int>(patience.count())) == 1 &&
         (wanted.revents & POLLHUP) != 0;
}

TEST(SocketCloser, NobodyIsWaitedForByWayOfAFileInAQueue) {
  SocketCloser closer(Where::apart);
  std::vector<UniqueFd> peers;
  for (int i = 0; i < kMany; ++i) {
    Connection slow = lingering(), box = pair_of(SOCK_STREAM);
    send_file(box.theirs.get(), slow.ours.get());
    slow.ours = UniqueFd();
    peers.push_back(std::move(slow.theirs));
    closer.close(std::move(box.ours), kAnn);
  }
  Connection file = pipe_of_two(), last = pair_of(SOCK_STREAM);
  send_file(last.theirs.get(), file.ours.get());
  file.ours = UniqueFd();
  closer.close(std::move(last.ours), kAnn);
  EXPECT_TRUE(becomes_true([&] {
    closer.go_on();
    return hung_up(file.theirs, 0ms);
  }));
}

// The closing thread has no other descriptor open. The descriptor that it looks for is opened
// before.
TEST(SocketCloser, ClosesApart) {
  const Connection other = pipe_of_two();
  std::atomic<int> seen = 0;
  SocketCloser closer(Where::apart, [&, fd = other.ours.get()](const UniqueFd&) {
    seen = ::fcntl(fd, F_GETFD) < 0 ? 1 : -1;
  });
  closer.close(pair_of(SOCK_STREAM).ours, kAnn);
  EXPECT_TRUE(becomes_true([&] { return seen != 0; }));
  EXPECT_EQ(seen, 1);
}

// A person whose sockets hang (those of streams here) has few of the threads, and a limit of its
// own.
TEST(SocketCloser, SocketsThatHangAreTheirPersonsTrouble) {
  std::atomic<bool> answered = false;
  std::atomic<int> closed = 0, hang = 0;
  {
    SocketCloser closer(Where::apart, [&](const UniqueFd& socket) {
      int type = 0;
      socklen_t size = sizeof type;
      (void)::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size);
      SystemClock clock;
      if (type == SOCK_STREAM) ++hang;
      while (type == SOCK_STREAM && !answered) clock.sleep_until(clock.now() + 1ms);
      ++closed;
    });
    for (std::size_t i = 0; i < SocketCloser::kMostOfOne; ++i) {
      EXPECT_FALSE(closer.is_full(kAnn));
      closer.close(pair_of(SOCK_STREAM).ours, kAnn);
    }
    EXPECT_TRUE(closer.is_full(kAnn));
    EXPECT_FALSE(closer.is_full());
    EXPECT_FALSE(closer.is_full(kBob));
    for (int i = 0; i < kMany; ++i) closer.close(pair_of(SOCK_DGRAM).ours, kBob);
    EXPECT_TRUE(becomes_true([&] {
      closer.go_on();
      return closed == kMany;
    }));
    EXPECT_EQ(hang, static_cast<int>(HangingThreads::kMostOfOne));
    answered = true;
    EXPECT_TRUE(becomes_true([&] {
      closer.go_on();
      return closed == kMany + static_cast<int>(SocketCloser::kMostOfOne);
    }));
    EXPECT_FALSE(closer.is_full(kAnn));
  }
}

// The peer does not wait for the close.
TEST(SocketCloser, ThePeerNoticesAtOnce) {
  const auto answered = std::make_shared<std::atomic<bool>>(false);  // the thread may outlive us
  SocketCloser closer(Where::apart, [answered](const UniqueFd&) {
    SystemClock clock;
    while (!*answered) clock.sleep_until(clock.now() + 1ms);
  });
  Connection pair = pair_of(SOCK_STREAM);
  closer.close(std::move(pair.ours), kAnn);
  EXPECT_TRUE(hung_up(pair.theirs, 10s));
  *answered = true;
}

TEST(SocketCloser, WhereNoFileComesItClosesAtOnce) {
  SocketCloser closer(Where::at_once);
  Connection pair = pair_of(SOCK_STREAM);
  const int number = pair.ours.get();
  closer.close(std::move(pair.ours), kAnn);
  EXPECT_LT(::fcntl(number, F_GETFD), 0);
  EXPECT_FALSE(closer.is_full(kAnn));
}

}  // namespace
}  // namespace derate
