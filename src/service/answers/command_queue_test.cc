#include "service/answers/command_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/background_worker.h"
#include "base/json.h"

namespace derate {
namespace {

class Queued : public testing::Test {
 protected:
  QueuedCommand command(std::string what, Role role = Role::operates) {
    return {.requester = "uid 7",
            .role = role,
            .operation = &operation<Release>(),
            .deadline = clock.now() + std::chrono::seconds(30),
            .run = [this, what]() -> Result<Json> {
              done += what;
              return Json{{"message", what}};
            }};
  }

  FakeClock clock;
  CommandQueue queue;
  std::string done;
};

TEST_F(Queued, IsDoneInOrderByTheNextDrain) {
  auto first = *queue.put(command("a"));
  auto second = *queue.put(command("b"));
  EXPECT_EQ(done, "");
  EXPECT_FALSE(is_ready(first));
  EXPECT_EQ(queue.drain(clock), 2u);
  EXPECT_EQ(done, "ab");
  EXPECT_EQ((*first.get())["message"], "a");
  EXPECT_EQ((*second.get())["message"], "b");
  EXPECT_EQ(queue.drain(clock), 0u);
}

TEST_F(Queued, ARoleThatIsTooLowIsRefused) {
  EXPECT_EQ(queue.put(command("a", Role::user)).error().code, Errc::no_permission);
  EXPECT_EQ(queue.drain(clock), 0u);
}

TEST_F(Queued, IsBoundedAndThenBusy) {
  for (std::size_t i = 0; i < CommandQueue::kMost; ++i) ASSERT_TRUE(queue.put(command("a")).ok());
  EXPECT_EQ(queue.put(command("a")).error().code, Errc::busy);
  EXPECT_EQ(queue.drain(clock), CommandQueue::kMost);
  EXPECT_TRUE(queue.put(command("a")).ok());
}

TEST_F(Queued, WhatNobodyWaitsForAnyMoreIsNotBegun) {
  auto late = *queue.put(command("a"));
  clock.advance(std::chrono::seconds(31));
  queue.drain(clock);
  EXPECT_EQ(done, "");
  EXPECT_EQ(late.get().error().code, Errc::busy);
}

TEST_F(Queued, WhatWaitsAtTheEndIsAnswered) {
  auto waits = *queue.put(command("a"));
  queue.refuse({Errc::busy, "derated ends"});
  EXPECT_EQ(waits.get().error().message, "derated ends");
  EXPECT_EQ(queue.drain(clock), 0u);
  EXPECT_EQ(done, "");
}

TEST_F(Queued, ThreadsPutWhileAnotherDrains) {
  constexpr int kEach = 200;
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < kEach;) {
        auto answer = queue.put({.requester = "",
                                 .role = Role::admin,
                                 .operation = &operation<Pause>(),
                                 .deadline = Instant::max(),
                                 .run = [&]() -> Result<Json> {
                                   ++taken;
                                   return Json::object();
                                 }});
        if (!answer.ok()) continue;
        ++i;
        EXPECT_TRUE(answer->get().ok());
      }
    });
  while (taken < 4 * kEach) queue.drain(clock);
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(queue.drain(clock), 0u);
}

}  // namespace
}  // namespace derate
