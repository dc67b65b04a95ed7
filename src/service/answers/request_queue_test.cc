#include "service/answers/request_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/json.h"
#include "service/answers/request_lines.h"

namespace derate {
namespace {

using Door = RequestQueue::Door;

class Queued : public testing::Test {
 protected:
  Queued() {
    router.add<Release>([this](const Release& request, const Peer&) -> Result<Json> {
      done += request.gpus;
      return Json{{"message", request.gpus}};
    });
    router.add<GpuList>([this](const GpuList&, const Peer&) -> Result<Json> {
      done += "?";
      return Json{{"gpus", Json::array()}};
    });
  }
  static Asked release(const std::string& gpus, uid_t uid = 7) {
    return {&operation<Release>(), Release{gpus}, {.pid = 1, .uid = uid, .connection = 5}};
  }
  static Asked gpus(uid_t uid) { return {&operation<GpuList>(), GpuList{}, {.uid = uid}}; }
  Result<void> put(Asked asked, Door door = Door::socket) {
    return queue.put(std::move(asked), router, door);
  }
  // The lines that are due.
  std::string answers() {
    std::string out;
    for (const auto& [connection, text] : lines.take_late()) out += text + "\n";
    return out;
  }

  FakeClock clock;
  std::vector<std::string> logged;
  CommandRouter router{Role::admin};
  RequestLines lines{router};
  RequestQueue queue{clock,
                     Log([this](const LogRecord& record) { logged.push_back(record.text); })};
  std::string done;
};

TEST_F(Queued, WhatChangesGpusIsDoneInOrderByTheNextRound) {
  ASSERT_TRUE(put(release("a")).ok());
  ASSERT_TRUE(put(release("b"), Door::http).ok());
  EXPECT_TRUE(queue.has_for_round());
  EXPECT_FALSE(queue.serve_one());
  EXPECT_EQ(done, "");
  EXPECT_TRUE(queue.do_round());
  EXPECT_EQ(done, "ab");
  EXPECT_EQ(answers(), "");
  queue.answer_round();
  EXPECT_EQ(answers(), R"({"ok":true,"message":"a"}
{"ok":true,"message":"b"}
)");
  EXPECT_FALSE(queue.do_round());
  EXPECT_EQ(logged.at(0), R"({"command":"release","gpus":"a"} from pid 1, uid 7)");
}

TEST_F(Queued, WhatOnlyReadsOvertakesIt) {
  ASSERT_TRUE(put(release("a"), Door::http).ok());
  ASSERT_TRUE(put(gpus(7), Door::http).ok());
  EXPECT_TRUE(queue.serve_one());
  EXPECT_FALSE(queue.serve_one());
  EXPECT_EQ(done, "?");
  EXPECT_NE(answers(), "");
}

TEST_F(Queued, IsBoundedOfAllThatWaitForARound) {
  for (std::size_t i = 0; i < RequestQueue::kMostForRound; ++i) ASSERT_TRUE(put(release("a")).ok());
  for (const Door door : {Door::socket, Door::http}) {
    const auto more = put(release("a"), door);
    EXPECT_EQ(more.error().code, Errc::busy);
    EXPECT_EQ(more.error().message, "64 commands wait already: try again later");
  }
  EXPECT_TRUE(put(gpus(7), Door::http).ok());
  EXPECT_TRUE(queue.do_round());
  EXPECT_TRUE(put(release("a")).ok());
}

TEST_F(Queued, IsBoundedOfAUserAndOfAllOverHttp) {
  for (std::size_t i = 0; i < RequestQueue::kMostOfOneUser; ++i)
    ASSERT_TRUE(put(gpus(7), Door::http).ok());
  EXPECT_EQ(put(gpus(7), Door::http).error().message, "gpus: too many requests wait");
  EXPECT_EQ(put(release("a"), Door::http).error().message, "release: too many requests wait");
  EXPECT_TRUE(put(release("a")).ok());  // over a socket
  for (std::size_t i = RequestQueue::kMostOfOneUser; i < RequestQueue::kMost; ++i)
    ASSERT_TRUE(put(gpus(static_cast<uid_t>(100 + i)), Door::http).ok());
  EXPECT_EQ(put(gpus(9), Door::http).error().code, Errc::busy);
}

TEST_F(Queued, WhatNobodyWaitsForAnyMoreIsNotBegun) {
  ASSERT_TRUE(put(release("a")).ok());
  clock.advance(std::chrono::seconds(31));
  queue.do_round();
  queue.answer_round();
  EXPECT_EQ(done, "");
  EXPECT_NE(answers().find("release: was not begun in time"), std::string::npos);
}

TEST_F(Queued, WhatWaitsAtTheEndIsAnswered) {
  ASSERT_TRUE(put(release("a")).ok());
  ASSERT_TRUE(put(gpus(7), Door::http).ok());
  queue.refuse({Errc::busy, "derated ends"});
  const std::string all = answers();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2);
  EXPECT_NE(all.find("derated ends"), std::string::npos);
  EXPECT_FALSE(queue.do_round());
  EXPECT_EQ(done, "");
}

TEST_F(Queued, ThreadsPutWhileAnotherDoes) {
  constexpr int kEach = 50;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach;)
        if (put(release("x", static_cast<uid_t>(thread)), Door::http).ok())
          ++i;
        else
          std::this_thread::yield();
    });
  while (done.size() < 4 * kEach)
    if (!queue.do_round()) std::this_thread::yield();
  for (std::thread& each : threads) each.join();
  EXPECT_FALSE(queue.do_round());
}

}  // namespace
}  // namespace derate
