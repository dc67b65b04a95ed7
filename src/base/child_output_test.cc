#include "base/child_output.h"

#include <gtest/gtest.h>

#include <chrono>

namespace derate {
namespace {

using namespace std::chrono_literals;

TEST(ChildOutput, IsThatOfBothStreamsApartWithTheExitCode) {
  SystemClock clock;
  const auto done = output_of({"sh", "-c", "echo one; echo two >&2; exit 3"}, 10s, clock);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->exit_code, 3);
  EXPECT_EQ(done->text, "one\n");
  EXPECT_EQ(done->errors, "two\n");
}

TEST(ChildOutput, ACommandThatDoesNotEndIsKilled) {
  SystemClock clock;
  const Instant begun = clock.now();
  const auto done = output_of({"sh", "-c", "sleep 100 & sleep 100"}, 100ms, clock);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Errc::gpu_stuck);
  EXPECT_LT(clock.now() - begun, 10s);
}

TEST(ChildOutput, WhatItLeavesBehindIsNotWaitedFor) {
  SystemClock clock;
  const auto done = output_of({"sh", "-c", "echo one; sleep 100 & exit 0"}, 10s, clock);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->text, "one\n");
}

TEST(ChildOutput, TooMuchIsCutOff) {
  SystemClock clock;
  const auto done = output_of({"yes"}, 10s, clock, 10'000);
  ASSERT_FALSE(done.ok());
}

TEST(ChildOutput, ACommandThatIsNotThereIsNamed) {
  SystemClock clock;
  EXPECT_EQ(output_of({"/no/such/command"}, 1s, clock).error().code, Errc::not_found);
}

}  // namespace
}  // namespace derate
