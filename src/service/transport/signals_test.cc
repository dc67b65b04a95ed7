#include "service/transport/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/clock.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// In a process of its own, whose handlers nobody else gets; its exit code.
int in_a_process(int (*does)()) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(does());
  int status = -1;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A signal that comes after the last look at it and before the wait.
TEST(Signals, ThatComeBeforeAWaitEndItAllTheSame) {
  EXPECT_EQ(in_a_process([] {
              watch_signals();
              const PollSource source = signal_source();
              SystemClock clock;
              for (const int number : {SIGTERM, SIGCHLD, SIGHUP}) {
                ::raise(number);
                if (listen_until({&source, 1}, clock, clock.now() + 60s)) return 1;
                // It has ended one wait, and ends no other.
                if (!listen_until({&source, 1}, clock, clock.now() + 10ms)) return 2;
              }
              return stop_signal() == SIGTERM ? 0 : 3;
            }),
            0);
}

TEST(Signals, ThatComeInAWaitEndIt) {
  EXPECT_EQ(in_a_process([] {
              watch_signals();
              const PollSource source = signal_source();
              SystemClock clock;
              const pid_t parent = ::getpid();
              if (::fork() == 0) {
                clock.sleep_until(clock.now() + 50ms);
                ::kill(parent, SIGTERM);
                ::_exit(0);
              }
              while (stop_signal() == 0)
                if (listen_until({&source, 1}, clock, clock.now() + 60s)) return 1;
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace derate
