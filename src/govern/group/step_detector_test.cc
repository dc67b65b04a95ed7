#include "govern/group/step_detector.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

// GPUs of one torchrun, a process each, looked at each second.
class Ranks {
 public:
  explicit Ranks(std::size_t gpus) {
    for (std::size_t i = 0; i < gpus; ++i) {
      StepEvidence one{.gpu = i};
      ProcessFacts process{{.pid = static_cast<std::int64_t>(100 + i), .uid = 1000}};
      process.group = process.session = 50;
      one.processes = {process};
      one.launches = LaunchRate{{{1, 0.5}, {2, 0.5}}, 1000, 0, {}};
      one.estimate.gpu_utilisation = Fraction(0.9);
      one.estimate.sm_clock = Megahertz(1500);
      one.estimate.requested_clock = Megahertz(1500);
      seen.push_back(one);
    }
  }
  std::vector<StepGroup> look(int times) {
    std::vector<StepGroup> out;
    for (int i = 0; i < times; ++i) {
      now += 1s;
      for (StepEvidence& each : seen) each.estimate.time = now;
      if (now.time_since_epoch() % 2s == 0s) end_windows();
      StepLook look = detector.update(now, seen);
      out = std::move(look.in_step);
      may_wait = std::move(look.may_wait);
    }
    return out;
  }
  void end_windows() {
    for (StepEvidence& each : seen) {
      if (!each.launches) continue;
      each.launches->time = now;
      each.launches->collectives += collectives;
    }
  }
  void one_process() {
    for (StepEvidence& each : seen) {
      each.processes[0].pid = 100;
      each.launches.reset();
    }
  }

  Instant now{};
  std::uint64_t collectives = 960;  // of each, in a window of two seconds
  StepDetector detector;
  std::vector<StepEvidence> seen;
  std::vector<std::size_t> may_wait;  // at the last look
};

TEST(StepDetector, AsManyCollectivesOfOneJob) {
  Ranks ranks(4);
  EXPECT_TRUE(ranks.look(10).empty());
  const auto groups = ranks.look(5);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].gpus, (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_EQ(ranks.look(20)[0].number, groups[0].number);
}

TEST(StepDetector, WhatIsNotKnownToBeInStepMayWait) {
  Ranks ranks(3);
  ranks.seen[2].processes[0].uid = 1001;
  ranks.look(5);
  EXPECT_EQ(ranks.may_wait, (std::vector<std::size_t>{0, 1}));
  ASSERT_EQ(ranks.look(10).size(), 1u);
  EXPECT_TRUE(ranks.may_wait.empty());
  ranks.collectives = 0;  // as of those that CUDA graphs hide
  ranks.seen[1].launches->per_second = 700;
  EXPECT_TRUE(ranks.look(60).empty());
  EXPECT_EQ(ranks.may_wait, (std::vector<std::size_t>{0, 1}));
  ranks.seen[0].processes.clear();
  ranks.look(1);
  EXPECT_TRUE(ranks.may_wait.empty());
}

// Unequal batches: other kernels, at another rate.
TEST(StepDetector, WhatElseIsLaunchedDoesNotCount) {
  Ranks ranks(2);
  ranks.seen[1].launches->mix = {{1, 0.9}, {2, 0.1}};
  ranks.seen[1].launches->per_second = 700;
  EXPECT_EQ(ranks.look(15).size(), 1u);
}

TEST(StepDetector, OtherNumbersOfCollectivesAreNotInStep) {
  Ranks ranks(2);
  ranks.seen[1].launches->collectives = 500;  // ahead by a second
  EXPECT_TRUE(ranks.look(60).empty());
  ranks.seen[1].launches->collectives = ranks.seen[0].launches->collectives + 3;
  EXPECT_EQ(ranks.look(15).size(), 1u);
  ranks.seen[1].launches->collectives += 500;
  EXPECT_EQ(ranks.look(4).size(), 1u);  // a moment is none
  EXPECT_TRUE(ranks.look(5).empty());
}

TEST(StepDetector, WithoutCollectivesRatesHaveToBeOneForLong) {
  Ranks ranks(2);
  ranks.collectives = 0;
  EXPECT_TRUE(ranks.look(27).empty());  // the first window ended as it began
  EXPECT_EQ(ranks.look(1).size(), 1u);
  ranks.seen[1].launches->per_second = 990;
  EXPECT_TRUE(ranks.look(30).empty());
  ranks.seen[1].launches->per_second = 1000;
  ranks.seen[1].launches->mix = {{1, 0.9}, {2, 0.1}};
  EXPECT_TRUE(ranks.look(60).empty());
}

TEST(StepDetector, WithoutLaunchesOnlyOneProcess) {
  Ranks ranks(2);
  for (StepEvidence& each : ranks.seen) each.launches.reset();
  EXPECT_TRUE(ranks.look(120).empty());
  ranks.one_process();
  EXPECT_TRUE(ranks.look(25).empty());
  EXPECT_EQ(ranks.look(10).size(), 1u);
  ranks.seen[1].estimate.gpu_utilisation = Fraction(0.3);
  EXPECT_TRUE(ranks.look(30).empty());
}

TEST(StepDetector, KnownOfSomeIsKnownOfNone) {
  Ranks ranks(2);
  ranks.one_process();
  ranks.seen[0].launches = LaunchRate{{{1, 1.0}}, 1000, 0, {}};
  EXPECT_TRUE(ranks.look(120).empty());
}

TEST(StepDetector, ABatchJobIsOneJob) {
  Ranks ranks(2);
  ranks.seen[1].processes[0].session = 51;
  EXPECT_TRUE(ranks.look(60).empty());
  for (StepEvidence& each : ranks.seen) each.batch_job = "4711";
  EXPECT_EQ(ranks.look(15).size(), 1u);
  ranks.seen[1].processes[0].uid = 1001;
  EXPECT_TRUE(ranks.look(15).empty());
}

// As torchrun starts its ranks: each in a session of its own.
TEST(StepDetector, RanksInSessionsOfTheirOwnAreOneJob) {
  Ranks ranks(2);
  for (StepEvidence& each : ranks.seen) {
    ProcessFacts& process = each.processes[0];
    process.session = process.group = process.pid;
  }
  EXPECT_TRUE(ranks.look(60).empty());
  ranks.seen[0].processes[0].ancestors = {90, 80};
  ranks.seen[1].processes[0].ancestors = {91, 90, 80};  // by way of a script
  EXPECT_EQ(ranks.look(15).size(), 1u);
  ranks.collectives = 0;
  EXPECT_TRUE(ranks.look(60).empty());  // what is one so is known by collectives alone
}

TEST(StepDetector, TheFirstRankMayStartTheOthers) {
  Ranks ranks(3);
  for (StepEvidence& each : ranks.seen) each.processes[0].session = each.processes[0].pid;
  ranks.seen[0].processes[0].ancestors = {50};
  ranks.seen[1].processes[0].ancestors = ranks.seen[2].processes[0].ancestors = {100, 50};
  const auto groups = ranks.look(15);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].gpus.size(), 3u);
}

// Two launchers of one script, whose jobs are at different places.
TEST(StepDetector, TheNearestLauncherCounts) {
  Ranks ranks(4);
  for (std::size_t i = 0; i < 4; ++i) {
    ranks.seen[i].processes[0].ancestors = {i < 2 ? 60 : 70, 50};
    ranks.seen[i].launches->collectives = i < 2 ? 0 : 5000;
  }
  const auto groups = ranks.look(15);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].gpus, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(groups[1].gpus, (std::vector<std::size_t>{2, 3}));
}

TEST(StepDetector, OtherProcessesEndItAtOnce) {
  Ranks ranks(3);
  const auto number = ranks.look(15)[0].number;
  ranks.seen[2].processes.push_back({{.pid = 7, .uid = 1000}});
  EXPECT_TRUE(ranks.look(1).empty());
  const auto rest = ranks.look(15);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].gpus, (std::vector<std::size_t>{0, 1}));
  EXPECT_NE(rest[0].number, number);
}

// Whatever processes come and go, a unit is of one user's GPUs that have one process each.
RC_GTEST_PROP(StepDetectorProperty, AUnitIsOneUsers, (std::vector<std::vector<int>> looks)) {
  Ranks ranks(5);
  for (const std::vector<int>& changes : looks) {
    for (std::size_t i = 0; i < std::min<std::size_t>(5, changes.size()); ++i) {
      StepEvidence& each = ranks.seen[i];
      each.processes.resize(static_cast<std::size_t>(1 + (changes[i] & 1)), each.processes[0]);
      each.processes[0].uid = static_cast<std::uint32_t>(changes[i] & 2);
    }
    std::vector<int> units(5);
    const auto groups = ranks.look(15);
    for (const std::size_t gpu : ranks.may_wait) RC_ASSERT(++units[gpu] == 1);
    for (const StepGroup& group : groups) {
      RC_ASSERT(group.gpus.size() >= 2u);
      for (const std::size_t gpu : group.gpus) {
        RC_ASSERT(++units[gpu] == 1);
        RC_ASSERT(ranks.seen[gpu].processes.size() == 1u);
        RC_ASSERT(ranks.seen[gpu].processes[0].uid == ranks.seen[group.gpus[0]].processes[0].uid);
      }
    }
  }
}

TEST(StepDetector, NamesTheOneWithALowerClock) {
  Ranks ranks(4);
  ranks.seen[2].estimate.sm_clock = Megahertz(1300);
  const auto groups = ranks.look(30);
  ASSERT_TRUE(groups[0].straggler);
  EXPECT_EQ(groups[0].straggler->gpu, 2u);
  EXPECT_EQ(groups[0].straggler->why, "its clock is 1300 MHz where the others have 1500 and more");
  ranks.seen[2].estimate.requested_clock = Megahertz(1300);  // as it was asked to
  EXPECT_FALSE(ranks.look(1)[0].straggler);
}

// A rank that starts later is not slower.
TEST(StepDetector, WhatWasBeforeTheUnitNamesNone) {
  Ranks ranks(2);
  ranks.seen[1].estimate.gpu_utilisation = Fraction(0.1);
  ranks.seen[1].estimate.sm_clock = Megahertz(345);
  ASSERT_TRUE(ranks.look(10).empty());
  ranks.seen[1].estimate.gpu_utilisation = Fraction(0.9);
  ranks.seen[1].estimate.sm_clock = Megahertz(1500);
  ASSERT_EQ(ranks.look(5).size(), 1u);
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(ranks.look(1)[0].straggler) << i;
}

TEST(StepDetector, NamesTheOneThatDoesNotWait) {
  Ranks ranks(4);
  EXPECT_FALSE(ranks.look(15)[0].straggler);
  ranks.seen[3].estimate.gpu_utilisation = Fraction(0.96);
  const auto groups = ranks.look(60);
  ASSERT_TRUE(groups[0].straggler);
  EXPECT_EQ(groups[0].straggler->gpu, 3u);
}

}  // namespace
}  // namespace derate
