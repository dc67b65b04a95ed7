#include "attrib/program_memory.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace derate {
namespace {

const std::string kGpu = "GPU-a";

// One second of one process that works, with what a method has found out of its watts.
struct Seen {
  std::string key, program = "train";
  double watts = 300, sd = 5;
};

std::optional<Belief> take(ProgramMemory& memory, const Seen& seen) {
  AttribTick tick{.length = std::chrono::seconds(1)};
  tick.tenants = {{.key = seen.key,
                   .signal = SignalKind::process_utilisation,
                   .program = ProgramId{"alice", seen.program},
                   .sm_utilisation = Fraction(0.8)}};
  memory.foretell(kGpu, tick);
  PowerEstimate estimate;
  estimate.tenants = {{.working_w = Belief{seen.watts, seen.sd}, .working_prior = Fraction(0.01)}};
  memory.learn(kGpu, tick, estimate);
  return tick.tenants[0].expected_w;
}

// The expectation of a process that is new.
std::optional<Belief> expected(ProgramMemory memory, const std::string& program = "train") {
  return take(memory, {.key = "new", .program = program});
}

void run(ProgramMemory& memory, Seen seen, int seconds = 60) {
  for (int i = 0; i < seconds; ++i) take(memory, seen);
}

RC_GTEST_PROP(ProgramMemory, ANewProcessBeginsAtWhatItsProgramDrew, ()) {
  ProgramMemory memory;
  const int runs = *rc::gen::inRange(1, 20);
  double sum = 0, least = 1e9, most = 0;
  for (int i = 0; i < runs; ++i) {
    const double watts = *rc::gen::inRange(50, 600);
    run(memory, {.key = std::to_string(i), .watts = watts, .sd = 0.1});
    sum += watts, least = std::min(least, watts), most = std::max(most, watts);
  }
  const auto now = expected(memory);
  RC_ASSERT(now.has_value());
  RC_ASSERT(std::abs(now->mean - sum / runs) < 0.02 * sum / runs);
  // As far as that has held: as wide as the runs differed, and never sure.
  RC_ASSERT(now->sd >= 0.08 * now->mean);
  RC_ASSERT(now->mean + 3 * now->sd > most && now->mean - 3 * now->sd < least);
  RC_ASSERT(!expected(memory, "infer"));
}

// A restart changes nothing of the expectation.
RC_GTEST_PROP(ProgramMemory, ARestartKeepsIt, ()) {
  ProgramMemory memory;
  for (int i = *rc::gen::inRange(0, 6); i >= 0; --i)
    run(memory, {.key = std::to_string(i), .watts = 1.0 * *rc::gen::inRange(50, 600)});
  ProgramMemory again;
  again.load(memory.programs());
  const auto before = expected(memory), after = expected(again);
  RC_ASSERT(before && after);
  RC_ASSERT(std::abs(before->mean - after->mean) < 1 && std::abs(before->sd - after->sd) < 1);
}

// A process of which the ticks showed nothing repeats what was expected of it: that is no evidence.
TEST(ProgramMemory, AnExpectationDoesNotConfirmItself) {
  ProgramMemory memory;
  run(memory, {.key = "first", .watts = 300});
  const Belief before = *expected(memory);
  for (int i = 0; i < 20; ++i)
    run(memory, {.key = std::to_string(i), .watts = before.mean, .sd = before.sd});
  EXPECT_EQ(expected(memory)->sd, before.sd);
  EXPECT_NEAR(memory.programs()[0].runs, 0.99, 0.02);
}

// Its own ticks have shown half of it: the rest is the expectation's and is taken out again.
TEST(ProgramMemory, OnlyWhatItsTicksShowedCounts) {
  ProgramMemory memory;
  run(memory, {.key = "first", .watts = 300});
  const Belief before = *expected(memory);
  const double half = before.sd * std::sqrt(0.4);
  run(memory, {.key = "second", .watts = 0.4 * 300 + 0.6 * 200, .sd = half});
  EXPECT_NEAR(expected(memory)->mean, (300 * 0.99 + 200 * 0.6) / 1.59, 5);
}

// The method forgets a process without samples for minutes; it comes back as it was.
TEST(ProgramMemory, AProcessThatComesBackIsTheSame) {
  ProgramMemory memory;
  for (int i = 0; i < 5; ++i) run(memory, {.key = std::to_string(i), .watts = 150.0 + 80 * i});
  run(memory, {.key = "here", .watts = 480});
  const Belief own = *take(memory, {.key = "here", .watts = 480});
  EXPECT_NEAR(own.mean, 480, 1);
  EXPECT_LT(own.sd, 60);
  EXPECT_GT(expected(memory)->sd, 80);
}

TEST(ProgramMemory, WhatCannotBeIsNotLoaded) {
  const double infinite = std::numeric_limits<double>::infinity();
  const double none = std::numeric_limits<double>::quiet_NaN();
  ProgramMemory memory;
  memory.load({{{"alice", "train"}, none, 300, 10},
               {{"alice", "train"}, -1, 300, 10},
               {{"alice", "train"}, 1e9, 300, 10},
               {{"alice", "train"}, 1, infinite, 10},
               {{"alice", "train"}, 1, 1e6, 10},
               {{"alice", "train"}, 1, 300, -4},
               {{"alice", "train"}, 1, 300, none},
               {{"alice", ""}, 1, 300, 10}});
  EXPECT_TRUE(memory.programs().empty());
}

TEST(ProgramMemory, HasRoomForThoseSeenLast) {
  ProgramMemory memory;
  for (std::size_t i = 0; i < ProgramMemory::kMost + 10; ++i)
    run(memory, {.key = std::to_string(i), .program = std::to_string(i)}, 20);
  take(memory, {.key = "end", .program = "end"});
  EXPECT_LE(memory.programs().size(), ProgramMemory::kMost + 1);
  EXPECT_FALSE(expected(memory, "0"));
  EXPECT_TRUE(expected(memory, std::to_string(ProgramMemory::kMost + 9)));
}

// The watts of a tick are known there, not those of the process at the highest clock.
TEST(ProgramMemory, TheSumUnderThePowerLimitSaysNothingOfAProgram) {
  ProgramMemory memory;
  AttribTick tick{.length = std::chrono::seconds(1)};
  tick.tenants = {{.key = "a",
                   .signal = SignalKind::process_utilisation,
                   .program = ProgramId{"user", "train"},
                   .sm_utilisation = Fraction(1)}};
  PowerEstimate estimate;
  estimate.tenants = {{.dynamic = Watts(500),
                       .prior_share = Fraction(0),
                       .working_w = Belief{450, 200},
                       .working_prior = Fraction(1)}};
  for (int i = 0; i < 600; ++i) memory.learn("GPU", tick, estimate);
  EXPECT_TRUE(memory.programs().empty());
  estimate.tenants[0].working_prior = Fraction(0.1);
  for (int i = 0; i < 600; ++i) memory.learn("GPU", tick, estimate);
  EXPECT_EQ(memory.programs().size(), 1u);
}

}  // namespace
}  // namespace derate
