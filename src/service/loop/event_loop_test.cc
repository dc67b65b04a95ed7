#include "service/loop/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using Priority = EventLoop::Priority;

constexpr std::array kHup{SIGHUP};
constexpr std::array kHupAndTerm{SIGHUP, SIGTERM};

struct Ends {
  UniqueFd near, far;
};

Ends ends() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

// Nobody reads it: it can be read from for ever.
Ends flooded() {
  Ends out = ends();
  EXPECT_EQ(::write(out.far.get(), "x", 1), 1);
  return out;
}

EventLoop::Timer timer(EventLoop& loop, Priority priority, EventLoop::Callback callback) {
  return *loop.add_timer(priority, std::move(callback));
}

// In a process of its own, whose signals nobody else gets; its exit code, -1 when it was killed.
int in_a_process(int (*does)()) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(does());
  int status = -1;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(EventLoop, CallsTheHigherPriorityFirst) {
  const Ends socket = flooded();
  const auto loop = *EventLoop::create();
  std::string order;
  ASSERT_TRUE(loop->add_descriptor(socket.near.get(), Priority::socket,
                                   [&] {
                                     order += 's';
                                     loop->stop();
                                   })
                  .ok());
  auto round = timer(*loop, Priority::round, [&] { order += 'r'; });
  auto beat = timer(*loop, Priority::heartbeat, [&] { order += 'h'; });
  round.set({});
  beat.set({});
  ASSERT_TRUE(loop->run().ok());
  EXPECT_EQ(order, "hrs");
}

// Also where a round is late again and again.
TEST(EventLoop, ARoundThatIsAlwaysDueLeavesTheHeartbeatItsTurn) {
  const auto loop = *EventLoop::create();
  int rounds = 0, beats = 0;
  EventLoop::Timer round, beat;
  round = timer(*loop, Priority::round, [&] {
    if (++rounds == 50) loop->stop();
    beat.set({});
    round.set({});
  });
  beat = timer(*loop, Priority::heartbeat, [&] { ++beats; });
  round.set({});
  ASSERT_TRUE(loop->run().ok());
  EXPECT_EQ(beats, 49);
}

TEST(EventLoop, SocketsTakeTurns) {
  const Ends one = flooded(), two = flooded();
  const auto loop = *EventLoop::create();
  std::string order;
  const auto note = [&](char which) {
    order += which;
    if (order.size() == 100) loop->stop();
  };
  ASSERT_TRUE(loop->add_descriptor(one.near.get(), Priority::socket, [&] { note('1'); }).ok());
  ASSERT_TRUE(loop->add_descriptor(two.near.get(), Priority::socket, [&] { note('2'); }).ok());
  ASSERT_TRUE(loop->run().ok());
  EXPECT_EQ(std::count(order.begin(), order.end(), '1'), 50) << order;
}

TEST(EventLoop, AFloodHasItsShareAndHoldsUpNoTimer) {
  const Ends socket = flooded();
  const auto loop = *EventLoop::create();
  const SystemClock clock;
  unsigned calls = 0;
  ASSERT_TRUE(loop->add_descriptor(socket.near.get(), Priority::socket, [&] { ++calls; }).ok());
  // A busy machine may need more than half a share's time for a share.
  unsigned left = 100;
  std::function<void()> look = [&] { loop->stop(); };
  auto end = timer(*loop, Priority::round, [&] { look(); });
  look = [&] {
    if (calls >= EventLoop::kMostCalls || --left == 0) return loop->stop();
    end.set(clock.now() + EventLoop::kShareTime / 2);
  };
  const Instant begin = clock.now();
  end.set(begin + EventLoop::kShareTime / 2);
  ASSERT_TRUE(loop->run().ok());
  // A share for each part of the time that has begun; on a slow machine there are more of them.
  const auto parts = (clock.now() - begin) / EventLoop::kShareTime + 2;
  EXPECT_GE(calls, EventLoop::kMostCalls);
  EXPECT_LE(calls, EventLoop::kMostCalls * parts);
}

// What had its share is called again when the next has come.
TEST(EventLoop, AFloodGoesOnWithItsNextShare) {
  const Ends socket = flooded();
  const auto loop = *EventLoop::create();
  unsigned calls = 0;
  ASSERT_TRUE(loop->add_descriptor(socket.near.get(), Priority::socket,
                                   [&] {
                                     if (++calls > EventLoop::kMostCalls) loop->stop();
                                   })
                  .ok());
  ASSERT_TRUE(loop->run().ok());
  EXPECT_EQ(calls, EventLoop::kMostCalls + 1);
}

RC_GTEST_PROP(EventLoop, TimersAreCalledOnceEachAndNeverEarly, ()) {
  const auto offsets =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-2000, 4000)));
  const auto loop = *EventLoop::create();
  const SystemClock clock;
  const Instant begin = clock.now();
  std::vector<int> called;
  std::vector<EventLoop::Timer> timers;
  bool early = false;
  for (const int offset : offsets) {
    const Instant due = begin + std::chrono::microseconds(offset);
    timers.push_back(timer(*loop, Priority::round, [&, offset, due] {
      called.push_back(offset);
      early = early || clock.now() < due;
      if (called.size() == offsets.size()) loop->stop();
    }));
    timers.back().set(due);
  }
  RC_ASSERT(loop->run().ok());
  RC_ASSERT(!early);
  auto wanted = offsets;
  std::sort(wanted.begin(), wanted.end());
  std::sort(called.begin(), called.end());
  RC_ASSERT(called == wanted);
}

TEST(EventLoop, ATimerHasOneDueTimeAndIsCalledForItOnce) {
  const auto loop = *EventLoop::create();
  const SystemClock clock;
  int moved = 0, unset = 0;
  Instant called_at{};
  auto one = timer(*loop, Priority::round, [&] { ++moved, called_at = clock.now(); });
  [[maybe_unused]] auto none = timer(*loop, Priority::round, [&] { ++unset; });
  auto end = timer(*loop, Priority::round, [&] { loop->stop(); });
  const Instant begin = clock.now();
  one.set(begin + 1ms);
  one.set(begin + 10ms);
  end.set(begin + 20ms);
  EventLoop::Timer().set(begin);  // of no loop: nothing
  ASSERT_TRUE(loop->run().ok());
  EXPECT_EQ(moved, 1);
  EXPECT_GE(called_at, begin + 10ms);
  EXPECT_EQ(unset, 0);
  one.set(begin);  // the loop has ended: nothing
}

TEST(EventLoop, AStopIsTheLastThingThatACallbackDoes) {
  const auto loop = *EventLoop::create();
  int calls = 0;
  const auto stop = [&] { ++calls, loop->stop(); };
  auto one = timer(*loop, Priority::round, stop), two = timer(*loop, Priority::round, stop);
  one.set({});
  two.set({});
  ASSERT_TRUE(loop->run().ok());
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, AnExceptionEndsItAndIsThrownOn) {
  const auto loop = *EventLoop::create();
  int later = 0;
  auto bad = timer(*loop, Priority::heartbeat, [] { throw std::runtime_error("out of order"); });
  auto next = timer(*loop, Priority::round, [&] { ++later; });
  bad.set({});
  next.set({});
  try {
    (void)loop->run().ok();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "out of order");
  }
  EXPECT_EQ(later, 0);
}

TEST(EventLoop, AHangupIsToldOnceAndWhatCameBeforeItIsNot) {
  Ends line = flooded();
  const auto loop = *EventLoop::create();
  const SystemClock clock;
  int ends = 0, ticks = 0;
  ASSERT_TRUE(loop->add_hangup(line.near.get(), Priority::round, [&] { ++ends; }).ok());
  EventLoop::Timer tick;
  tick = timer(*loop, Priority::socket, [&] {
    if (++ticks == 5) {
      EXPECT_EQ(ends, 0);
      line.far = UniqueFd();
    }
    if (ticks == 10) loop->stop();
    tick.set(clock.now());
  });
  tick.set(clock.now());
  ASSERT_TRUE(loop->run().ok());
  EXPECT_EQ(ends, 1);
}

TEST(EventLoop, WhatCannotBeWaitedForIsRefused) {
  const Ends socket = ends();
  const auto loop = *EventLoop::create();
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const auto none = [] { ADD_FAILURE() << "called"; };
  const auto add = [&](int fd) { return loop->add_descriptor(fd, Priority::socket, none); };
  EXPECT_EQ(add(file.get()).error().code, Errc::invalid_argument);
  EXPECT_EQ(add(-1).error().code, Errc::invalid_argument);
  ASSERT_TRUE(add(socket.near.get()).ok());
  EXPECT_EQ(add(socket.near.get()).error().code, Errc::invalid_argument);
  EXPECT_EQ(loop->add_signals(kHup, Priority::round, [](int) {}).error().code,
            Errc::invalid_argument)
      << "it is not blocked";
  // What was refused has left nothing behind.
  auto end = timer(*loop, Priority::round, [&] { loop->stop(); });
  end.set({});
  EXPECT_TRUE(loop->run().ok());
}

// Before the loop runs, in a callback, and more than once before its turn.
TEST(EventLoop, ASignalIsNeverLostAndInterruptsNoCallback) {
  EXPECT_EQ(in_a_process([] {
              block_signals(kHupAndTerm);
              const auto loop = *EventLoop::create();
              std::string order;
              const auto came = [&](int number) {
                order += number == SIGHUP ? 'h' : 't';
                if (number == SIGTERM) loop->stop();
              };
              if (!loop->add_signals(kHupAndTerm, Priority::round, came).ok()) return 1;
              ::raise(SIGHUP);
              ::raise(SIGHUP);
              auto late = timer(*loop, Priority::socket, [&] {
                order += '(';
                ::kill(::getpid(), SIGTERM);
                order += ')';
              });
              late.set({});
              if (!loop->run().ok()) return 2;
              return order == "h()t" ? 0 : 3;
            }),
            0);
}

// As many as there can be: the next one has come when one is called for.
TEST(EventLoop, AStormOfSignalsLeavesARoundItsTurn) {
  EXPECT_EQ(in_a_process([] {
              block_signals(kHup);
              const auto loop = *EventLoop::create();
              int signals = 0, rounds = 0;
              EventLoop::Timer round;
              round = timer(*loop, Priority::round, [&] {
                if (++rounds == 50) loop->stop();
                round.set({});
              });
              const auto again = [&](int) {
                ::raise(SIGHUP);
                if (++signals > 10'000) loop->stop();
              };
              if (!loop->add_signals(kHup, Priority::round, again).ok()) return 1;
              ::raise(SIGHUP);
              round.set({});
              if (!loop->run().ok()) return 2;
              return rounds == 50 && signals > 0 ? 0 : 3;
            }),
            0);
}

// A thread that was started after block_signals() neither gets them nor lets them end the process,
// also when the loop is gone.
TEST(EventLoop, SignalsAreTheLoopsAndStayBlockedAfterIt) {
  EXPECT_EQ(in_a_process([] {
              block_signals(kHupAndTerm);
              SystemClock clock;
              bool whole = false;
              std::thread other([&] { whole = clock.sleep_until(clock.now() + 50ms); });
              auto loop = *EventLoop::create();
              int came = 0;
              const auto stop = [&](int number) { came = number, loop->stop(); };
              if (!loop->add_signals(kHupAndTerm, Priority::round, stop).ok()) return 1;
              ::kill(::getpid(), SIGTERM);
              const bool ran = loop->run().ok();
              loop.reset();
              ::kill(::getpid(), SIGTERM);
              other.join();
              return ran && whole && came == SIGTERM ? 0 : 2;
            }),
            0);
}

}  // namespace
}  // namespace derate
