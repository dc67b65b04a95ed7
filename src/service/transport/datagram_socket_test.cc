#include "service/transport/datagram_socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/un.h>

#include <array>
#include <string>
#include <vector>

#include "base/unix_address.h"
#include "service/transport/test_passed_files.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

bool is_memory(int file) { return ::fcntl(file, F_GET_SEALS) > 1; }

UniqueFd sealed_memory() {
  UniqueFd out(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(::fcntl(out.get(), F_ADD_SEALS, F_SEAL_GROW) == 0);
  return out;
}

// In these tests, files in memory (memfd) are wanted.
class DatagramFilterTest : public testing::Test {
 protected:
  UniqueFd caller() const { return caller_of(path_); }
  static UniqueFd caller_of(const std::string& path) {
    UniqueFd out = new_datagram_socket();
    const sockaddr_un address = *address_of(path);
    CHECK(::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return out;
  }
  // Waits for the next message that is passed on.
  std::optional<Datagram> next() {
    std::optional<Datagram> out;
    (void)becomes_true([&] { return (out = socket_.receive(text_)).has_value(); });
    return out;
  }

  // Sends files whose close lingers, and keeps none. Returns their peers, without which no close
  // lingers.
  static std::vector<UniqueFd> send_lingering(const UniqueFd& from, int files) {
    std::vector<UniqueFd> peers;
    for (int i = 0; i < files; ++i) {
      Connection slow = lingering();
      send_file(from.get(), slow.ours.get());
      slow.ours = UniqueFd();
      peers.push_back(std::move(slow.theirs));
    }
    return peers;
  }

  const Folder folder_{0755};
  const std::string path_ = folder_.file("any.sock");
  std::shared_ptr<HangingThreads> hanging_ = std::make_shared<HangingThreads>();
  DatagramSocket socket_ = *DatagramSocket::bind(
      path_, [](uid_t uid) { return uid; }, is_memory, hanging_);
  std::array<char, 64> text_{};
};

TEST_F(DatagramFilterTest, PassesOnTextAndWhatIsWanted) {
  const UniqueFd from = caller();
  ASSERT_EQ(::send(from.get(), "text", 4, 0), 4);
  auto got = next();
  ASSERT_TRUE(got);
  EXPECT_EQ(std::string(text_.data(), got->size), "text");
  EXPECT_EQ(got->sender->pid, ::getpid());
  EXPECT_EQ(got->sender->uid, ::getuid());
  EXPECT_TRUE(got->sent);
  EXPECT_FALSE(got->file.valid());
  EXPECT_FALSE(got->process.has_ended());
  const UniqueFd memory = sealed_memory();
  send_file(from.get(), memory.get());
  got = next();
  ASSERT_TRUE(got);
  ASSERT_TRUE(got->file.valid());
  EXPECT_TRUE(is_memory(got->file.get()));
}

// Any number of unwanted files is closed soon, and wanted messages arrive meanwhile.
TEST_F(DatagramFilterTest, WhatIsNotWantedIsClosedElsewhere) {
  const UniqueFd from = caller(), memory = sealed_memory();
  Connection file = pipe_of_two();
  const std::size_t open = open_files_of(::gettid());
  for (int i = 0; i < 5; ++i) send_file(from.get(), file.ours.get());
  send_file(from.get(), memory.get());
  const auto got = next();
  ASSERT_TRUE(got);
  EXPECT_TRUE(is_memory(got->file.get()));
  EXPECT_LE(open_files_of(::gettid()), open + 2);  // the wanted file, and its sender's pidfd
  file.ours = UniqueFd();
  EXPECT_TRUE(becomes_true([&] {
    EXPECT_FALSE(socket_.receive(text_));
    pollfd reader{file.theirs.get(), POLLIN, 0};
    return ::poll(&reader, 1, 0) == 1 && (reader.revents & POLLHUP) != 0;
  }));
}

// No signal ends a close of such a file, not even SIGKILL. The thread that closes it keeps its
// table of descriptors until the file system's process answers.
TEST_F(DatagramFilterTest, WhatHangsKeepsNothingButItself) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a file system";
  const FuseFile fuse(folder_.file("fuse"));
  if (!fuse.is_there()) GTEST_SKIP() << "no FUSE here";
  const UniqueFd from = caller();
  {
    const UniqueFd file = fuse.open();
    ASSERT_TRUE(file.valid());
    for (int i = 0; i < 2; ++i) send_file(from.get(), file.get());
  }
  ASSERT_EQ(::send(from.get(), "text", 4, 0), 4);
  const auto got = next();
  ASSERT_TRUE(got);
  EXPECT_EQ(std::string(text_.data(), got->size), "text");
  ASSERT_TRUE(becomes_true([&] { return fuse.hanging() != 0; }));
  EXPECT_LE(open_files_of(fuse.hanging()), 1u);  // the second file
}

// The thread that has the socket ends and closes the messages that were not received.
TEST_F(DatagramFilterTest, TheEndClosesWhatIsInTheQueue) {
  const UniqueFd from = caller();
  const std::vector<UniqueFd> peers = send_lingering(from, 5);
  SystemClock clock;
  const Instant begun = clock.now();
  { const DatagramSocket gone = std::move(socket_); }
  EXPECT_LT(clock.now() - begun, 5s);
  EXPECT_TRUE(becomes_true([&] { return ::send(from.get(), "x", 1, 0) < 0; }));
}

// A thread that has an unwanted file closes the socket and ends, at whatever moment the end comes.
TEST_F(DatagramFilterTest, TheEndNeverHangsHoweverItMeetsTheThread) {
  SystemClock clock;
  for (int i = 0; i < 40; ++i) {
    const std::string path = folder_.file(std::to_string(i) + ".sock");
    auto socket = std::make_optional(*DatagramSocket::bind(
        path, [](uid_t uid) { return uid; }, is_memory, std::make_shared<HangingThreads>()));
    const UniqueFd from = caller_of(path);
    const std::vector<UniqueFd> peers = send_lingering(from, 3);
    clock.sleep_until(clock.now() + std::chrono::microseconds(10 * i));
    const Instant begun = clock.now();
    socket.reset();
    ASSERT_LT(clock.now() - begun, 5s) << i;
  }
}

}  // namespace
}  // namespace derate
