#include "service/transport/passed_files.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

#include "service/transport/test_passed_files.h"

namespace derate {
namespace {

std::size_t open_files() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(all, {}));
}

ssize_t receive(const Connection& from) {
  std::array<char, 64> buffer{};
  return receive_without_files(from.ours, buffer);
}

TEST(PassedFiles, WhatHasNoneIsReceivedAsEver) {
  Connection pair = pair_of(SOCK_STREAM);
  EXPECT_EQ(receive(pair), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(::send(pair.theirs.get(), "one", 3, 0), 3);
  ASSERT_EQ(::send(pair.theirs.get(), "two", 3, 0), 3);
  EXPECT_EQ(receive(pair), 6);
  pair.theirs = UniqueFd();
  EXPECT_EQ(receive(pair), 0);
}

// The message stays wherever it is in the queue, and for any number of reads.
TEST(PassedFiles, AMessageWithAFileStaysWhereItIs) {
  for (const char* const before : {"", "text"}) {
    const Connection pair = pair_of(SOCK_STREAM);
    Connection file = pipe_of_two();
    const std::string text = before;
    (void)::send(pair.theirs.get(), text.data(), text.size(), 0);
    send_file(pair.theirs.get(), file.ours.get());
    file.ours = UniqueFd();
    const std::size_t open = open_files();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(receive(pair), -1) << before;
      EXPECT_EQ(errno, EPERM) << before;
    }
    EXPECT_EQ(open_files(), open);
    pollfd reader{file.theirs.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&reader, 1, 0), 0);  // the file is still in the queue
  }
}

// Without SO_OOBINLINE the kernel would drop an out-of-band byte and close its file in this thread.
TEST(PassedFiles, NorIsOneOutOfBandPassedOver) {
  const Connection pair = pair_of(SOCK_STREAM);
  const int on = 1;
  ASSERT_EQ(::setsockopt(pair.ours.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on), 0);
  Connection file = pipe_of_two();
  send_file(pair.theirs.get(), file.ours.get(), MSG_OOB);
  file.ours = UniqueFd();
  ASSERT_EQ(::send(pair.theirs.get(), "more", 4, 0), 4);
  EXPECT_EQ(receive(pair), -1);
  EXPECT_EQ(errno, EPERM);
  pollfd reader{file.theirs.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&reader, 1, 0), 0);
}

TEST(PassedFiles, FewThreadsHangOfOneAndFewInAll) {
  HangingThreads threads;
  for (std::size_t i = 0; i < HangingThreads::kMostOfOne; ++i) EXPECT_TRUE(threads.take(1000));
  EXPECT_FALSE(threads.take(1000));
  std::size_t all = HangingThreads::kMostOfOne;
  for (uid_t person = 2000; threads.take(person); ++person) ++all;
  EXPECT_EQ(all, HangingThreads::kMost);
  threads.give_back(1000);
  EXPECT_TRUE(threads.take(3000));
}

}  // namespace
}  // namespace derate
