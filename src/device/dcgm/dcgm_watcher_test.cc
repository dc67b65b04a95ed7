#include "device/dcgm/dcgm_watcher.h"

#include <gtest/gtest.h>

#include <chrono>

#include "device/dcgm/dcgm_listeners.h"
#include "device/dcgm/test_dcgm.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A watcher over an engine of two GPUs, on virtual time.
struct WatcherBench {
  explicit WatcherBench(DcgmUse use = DcgmUse::all)
      : watcher(
            use, [this] { return connect(); }, clock) {
    clock.step_wall(1h);
    engine.gpus = {{.id = 7, .uuid = "GPU-a", .busy = 0.25, .groups = TestDcgm::one_group()},
                   {.id = 3, .uuid = "GPU-b", .busy = 0.75, .groups = TestDcgm::one_group()}};
  }
  Result<DcgmWatcher::Connected> connect() {
    auto library = TRY(DcgmLibrary::create(engine.functions()));
    auto connected = TRY(DcgmEngine::connect(std::move(library), usual_dcgm_addresses().front()));
    return DcgmWatcher::Connected{std::move(connected), usual_dcgm_addresses().front()};
  }
  void need(const std::string& uuid, Duration period = kDcgmQuickPeriod) {
    needs[uuid] = {period, Instant::max()};
  }
  // Looks whenever it is due; `each` is called after every look.
  void run(
      Duration length, const std::function<void()>& each = [] {}) {
    const Instant end = clock.now() + length;
    while (clock.now() < end) {
      const Instant next = watcher.look(needs);
      each();
      clock.sleep_until(std::min(std::max(next, clock.now() + 1ms), end));
    }
  }
  const DcgmNews* news(const std::string& uuid, std::optional<int> instance = std::nullopt) const {
    const auto found = watcher.state().news.find({uuid, instance});
    return found != watcher.state().news.end() ? &found->second : nullptr;
  }
  std::string problem(const std::string& uuid) const {
    const auto found = watcher.state().gpu_problems.find(uuid);
    return found != watcher.state().gpu_problems.end() ? found->second : "";
  }

  FakeClock clock;
  TestDcgm engine{clock};
  DcgmNeeds needs;
  DcgmWatcher watcher;
};

TEST(DcgmWatcher, NothingIsConnectedUntilAGpuIsNeeded) {
  WatcherBench bench;
  bench.run(1h);
  EXPECT_EQ(bench.engine.calls, 0);
  EXPECT_EQ(bench.watcher.state().engine, "");
  EXPECT_EQ(bench.watcher.state().problem, "");
}

// A profiler that wants the hardware gets it: this process alone does not have the engine measure.
TEST(DcgmWatcher, ASharedGpuIsMeasuredWhileAnotherProgramHasItMeasured) {
  WatcherBench bench(DcgmUse::shared);
  bench.engine.others[3] = 30s;  // GPU-b
  bench.need("GPU-a");
  bench.need("GPU-b");
  bench.run(65s);
  EXPECT_FALSE(bench.news("GPU-a"));
  EXPECT_TRUE(bench.news("GPU-b"));
  EXPECT_FALSE(bench.engine.watched.contains(7));
  EXPECT_NE(bench.problem("GPU-a").find("for no other program"), std::string::npos);

  bench.engine.others[7] = 1s;
  bench.run(5s);
  EXPECT_TRUE(bench.news("GPU-a"));
  EXPECT_EQ(bench.problem("GPU-a"), "");
}

// The GPU works on, so the need never ends.
TEST(DcgmWatcher, ASharedGpuIsLeftOnceTheOtherProgramIsGone) {
  WatcherBench bench(DcgmUse::shared);
  bench.engine.others[7] = 1s;
  bench.need("GPU-a");
  bench.run(1min);
  ASSERT_TRUE(bench.news("GPU-a"));
  bench.engine.others.clear();
  bench.run(10min);
  EXPECT_FALSE(bench.engine.watched.contains(7));
  bench.run(30min);
  EXPECT_FALSE(bench.engine.watched.contains(7));
  bench.engine.others[7] = 1s;
  bench.run(5s);
  EXPECT_TRUE(bench.news("GPU-a"));
}

TEST(DcgmWatcher, ASharedGpuMissesOnePeriodOfTheOtherProgramEachTenMinutes) {
  WatcherBench bench(DcgmUse::shared);
  bench.engine.others[7] = 30s;
  bench.need("GPU-a");
  bench.run(2min);
  Duration without{};
  Instant last = bench.clock.now();
  bench.run(1h, [&] {
    if (!bench.news("GPU-a")) without += bench.clock.now() - last;
    last = bench.clock.now();
  });
  EXPECT_GT(without, Duration{});
  EXPECT_LE(without, 6 * 35s);
}

TEST(DcgmWatcher, TimeOfDayThatIsSetBackHoldsNoSharedGpuOff) {
  WatcherBench bench(DcgmUse::shared);
  bench.engine.others[7] = 1s;
  bench.need("GPU-a");
  bench.run(5s);
  ASSERT_TRUE(bench.news("GPU-a"));
  bench.engine.restart();
  bench.run(1s);
  bench.clock.step_wall(-30min);
  bench.run(10s);
  EXPECT_TRUE(bench.news("GPU-a"));
}

// The engine keeps values for a while: our own, an earlier process's, those of a program that has
// ended. None of them is a sign of another program.
TEST(DcgmWatcher, OldValuesAreNotAnotherPrograms) {
  WatcherBench bench(DcgmUse::shared);
  bench.engine.faults.keeps_values = true;
  bench.engine.others[7] = 1s;
  bench.need("GPU-a");
  bench.run(5s);
  ASSERT_TRUE(bench.news("GPU-a"));
  bench.engine.others.clear();
  for (const bool restarts : {false, true}) {
    bench.needs.clear();
    if (restarts) bench.engine.restart();
    bench.run(1s);
    bench.need("GPU-a");
    bench.run(1min);
    EXPECT_FALSE(bench.news("GPU-a")) << restarts;
    EXPECT_FALSE(bench.engine.watched.contains(7)) << restarts;
  }
}

TEST(DcgmWatcher, AGpuThatCannotBeMeasuredCostsALookEachTwoSeconds) {
  WatcherBench bench(DcgmUse::shared);
  bench.need("GPU-a");
  bench.run(10s);
  const int before = bench.engine.calls;
  int looks = 0;
  bench.run(1min, [&] { ++looks; });
  EXPECT_LE(looks, 32);
  EXPECT_LE(bench.engine.calls - before, 64);
}

TEST(DcgmWatcher, OneGpuThatFailsLeavesTheOthersTheirs) {
  WatcherBench bench;
  bench.engine.gpus[0].lost = true;
  bench.need("GPU-a");
  bench.need("GPU-b");
  bench.run(5s);
  EXPECT_FALSE(bench.news("GPU-a"));
  EXPECT_TRUE(bench.news("GPU-b"));
  EXPECT_EQ(bench.engine.connections, 1);
}

TEST(DcgmWatcher, AGpuThatTheEngineNamesLaterIsFound) {
  WatcherBench bench;
  const TestDcgmGpu late = bench.engine.gpus[0];
  bench.engine.gpus.erase(bench.engine.gpus.begin());
  bench.need("GPU-a");
  bench.run(5s);
  EXPECT_FALSE(bench.news("GPU-a"));
  bench.engine.gpus.push_back(late);
  bench.run(6min);
  EXPECT_TRUE(bench.news("GPU-a"));
}

TEST(DcgmWatcher, EachGpuHasItsOwnValuesWhateverItsNumberAndTheOrder) {
  for (const bool shuffled : {false, true}) {
    WatcherBench bench;
    bench.engine.faults.shuffled = shuffled;
    bench.need("GPU-a");
    bench.need("GPU-b");
    bench.run(2s);
    ASSERT_TRUE(bench.news("GPU-a") && bench.news("GPU-b"));
    EXPECT_NEAR(bench.news("GPU-a")->activity.sm.value().value(), 0.25, 0.02);
    EXPECT_NEAR(bench.news("GPU-b")->activity.dram.value().value(), 0.75, 0.02);
    EXPECT_FALSE(bench.news("GPU-a")->activity.fp32);
    EXPECT_EQ(bench.watcher.state().engine, "4.6.0 at 127.0.0.1:5555");
  }
}

TEST(DcgmWatcher, ValuesAreNeverOlderThanTwoPeriodsAndOneRoundTripIsMadeAPeriod) {
  WatcherBench bench;
  bench.need("GPU-a");
  bench.need("GPU-b");
  bench.run(1s);
  const int before = bench.engine.calls;
  bench.run(10s, [&] {
    ASSERT_TRUE(bench.news("GPU-a"));
    EXPECT_LE(bench.clock.now() - bench.news("GPU-a")->taken, 2 * kDcgmQuickPeriod);
  });
  // A hierarchy each ten seconds and GPU, too.
  EXPECT_LE(bench.engine.calls - before, 10s / kDcgmQuickPeriod + 4);
}

TEST(DcgmWatcher, AGpuThatNobodyNeedsIsNotMeasured) {
  WatcherBench bench;
  bench.needs["GPU-a"] = {kDcgmQuickPeriod, bench.clock.now() + 5s};
  bench.need("GPU-b", kDcgmSlowPeriod);
  bench.run(2s);
  EXPECT_EQ(bench.engine.watched.size(), 2u);
  EXPECT_EQ(bench.engine.watched.at(3), kDcgmSlowPeriod);
  bench.run(10s);
  EXPECT_EQ(bench.engine.watched.size(), 1u);
  EXPECT_EQ(bench.engine.open_groups, 1);
  EXPECT_FALSE(bench.news("GPU-a"));
  EXPECT_TRUE(bench.news("GPU-b"));
  bench.need("GPU-b", kDcgmQuickPeriod);
  bench.run(2s);
  EXPECT_EQ(bench.engine.watched.at(3), kDcgmQuickPeriod);
  EXPECT_EQ(bench.engine.open_groups, 1);
}

TEST(DcgmWatcher, AnEngineThatRestartsIsBackWithinFiveSeconds) {
  WatcherBench bench;
  bench.need("GPU-a");
  for (const Duration gone : {0s, 1s, 60s}) {
    bench.run(2s);
    ASSERT_TRUE(bench.news("GPU-a"));
    bench.engine.restart();
    bench.engine.faults.refused = gone > 0s;
    bench.run(200ms);
    EXPECT_FALSE(bench.news("GPU-a"));
    EXPECT_NE(bench.watcher.state().problem, "");
    bench.run(gone);
    bench.engine.faults.refused = false;
    bench.run(5s);
    EXPECT_TRUE(bench.news("GPU-a")) << seconds(gone);
    EXPECT_EQ(bench.watcher.state().problem, "");
  }
}

TEST(DcgmWatcher, AnEngineThatIsNotThereIsLookedForSeldom) {
  WatcherBench bench;
  bench.engine.faults.refused = true;
  bench.need("GPU-a");
  bench.run(1h);
  EXPECT_LE(bench.engine.calls, 30 + 3600 / 30 + 2);
  EXPECT_NE(bench.watcher.state().problem, "");
}

TEST(DcgmWatcher, HardwareThatAnotherProcessHasIsTriedAgain) {
  WatcherBench bench;
  bench.engine.faults.taken = true;
  bench.need("GPU-a");
  bench.run(60s);
  EXPECT_FALSE(bench.news("GPU-a"));
  EXPECT_NE(bench.problem("GPU-a"), "");
  EXPECT_LE(bench.engine.watches, 31);
  EXPECT_EQ(bench.engine.open_groups, 0);
  bench.engine.faults.taken = false;
  bench.run(5s);
  EXPECT_TRUE(bench.news("GPU-a"));
  EXPECT_EQ(bench.problem("GPU-a"), "");
}

TEST(DcgmWatcher, AnEngineWithoutTheProfilingModuleIsNotAskedAgainAndAgain) {
  WatcherBench bench;
  bench.engine.faults.no_module = true;
  bench.need("GPU-a");
  bench.run(1h);
  EXPECT_FALSE(bench.news("GPU-a"));
  EXPECT_NE(bench.problem("GPU-a"), "");
  EXPECT_LE(bench.engine.calls, 60);
}

struct NoNews {
  const char* name;
  void (*begin)(TestDcgm::Faults&);
  bool reported;  // as a problem of the GPU
};
class DcgmWatcherFaults : public testing::TestWithParam<NoNews> {};
TEST_P(DcgmWatcherFaults, LeaveNoNewsAndAreOver) {
  WatcherBench bench;
  bench.need("GPU-a");
  bench.run(2s);
  ASSERT_TRUE(bench.news("GPU-a"));
  GetParam().begin(bench.engine.faults);
  bench.run(1s);
  bench.run(10s, [&] { EXPECT_FALSE(bench.news("GPU-a")); });
  EXPECT_EQ(bench.problem("GPU-a") != "", GetParam().reported);
  bench.engine.faults = {};
  bench.run(5s);
  EXPECT_TRUE(bench.news("GPU-a"));
  EXPECT_EQ(bench.problem("GPU-a"), "");
}
INSTANTIATE_TEST_SUITE_P(All, DcgmWatcherFaults,
                         testing::Values(NoNews{"paused", [](auto& f) { f.paused = true; }, true},
                                         NoNews{"frozen", [](auto& f) { f.frozen = true; }, true},
                                         NoNews{"late", [](auto& f) { f.late = 1s; }, true},
                                         NoNews{"early", [](auto& f) { f.late = -1h; }, true}),
                         [](const auto& each) { return each.param.name; });

TEST(DcgmWatcher, APartThatDoesNothingMayStandStill) {
  WatcherBench bench;
  bench.engine.faults.zeros = true;
  bench.need("GPU-a");
  bench.run(1s);
  bench.run(10s, [&] { EXPECT_TRUE(bench.news("GPU-a")); });
}

TEST(DcgmWatcher, TimeOfDayMayJump) {
  for (const Duration by : {-1h, 1h}) {
    WatcherBench bench;
    bench.need("GPU-a");
    bench.run(2s);
    bench.clock.step_wall(by);
    bench.run(1s, [&] {
      const auto* news = bench.news("GPU-a");
      if (news) {
        EXPECT_LE(bench.clock.now() - news->taken, 200ms);
      }
    });
    EXPECT_TRUE(bench.news("GPU-a")) << seconds(by);
  }
}

TEST(DcgmWatcher, MigInstancesAreMeasuredAndFoundWhenTheyCome) {
  WatcherBench bench;
  bench.engine.gpus[0].instances = {1, 2};
  bench.need("GPU-a");
  bench.run(2s);
  ASSERT_TRUE(bench.news("GPU-a", 1) && bench.news("GPU-a", 2));
  EXPECT_NEAR(bench.news("GPU-a", 1)->activity.sm.value().value(), 0.35, 0.02);
  EXPECT_FALSE(bench.news("GPU-a", 3));
  bench.engine.gpus[0].instances = {1, 3};
  bench.run(15s);
  EXPECT_TRUE(bench.news("GPU-a", 1) && bench.news("GPU-a", 3));
  EXPECT_FALSE(bench.news("GPU-a", 2));
}

// Its counters went on meanwhile: the next value is the mean over all of that time.
TEST(DcgmWatcher, TheFirstValueAfterAGapIsNotUsed) {
  WatcherBench bench;
  bench.need("GPU-a");
  bench.run(2s);
  ASSERT_TRUE(bench.news("GPU-a"));
  bench.engine.faults.stopped = true;
  bench.run(2s);
  EXPECT_FALSE(bench.news("GPU-a"));
  bench.engine.faults.stopped = false;
  const Instant begin = bench.clock.now();
  bench.run(2s, [&] {
    EXPECT_TRUE(!bench.news("GPU-a") || bench.clock.now() - begin >= kDcgmQuickPeriod);
  });
  EXPECT_TRUE(bench.news("GPU-a"));
}

TEST(DcgmWatcher, ValuesOfAnEngineThatIsSlowerThanRequestedAreUsed) {
  WatcherBench bench;
  bench.engine.faults.slowest = 350ms;
  bench.need("GPU-a");
  bench.run(2s);
  Duration with{};
  Instant last = bench.clock.now();
  bench.run(10s, [&] {
    if (bench.news("GPU-a")) with += bench.clock.now() - last;
    last = bench.clock.now();
  });
  EXPECT_GT(with, 3s);
}

TEST(DcgmWatcher, AfterAPartitionNoInstanceHasTheActivityOfTheOneBefore) {
  WatcherBench bench;
  bench.engine.gpus[0].instances = {1, 2};
  bench.need("GPU-a");
  bench.run(2s);
  ASSERT_TRUE(bench.news("GPU-a", 1) && bench.news("GPU-a", 2));
  bench.engine.gpus[0].instances = {2, 3};
  bench.needs["GPU-a"].partition = 1;
  bench.watcher.look(bench.needs);
  EXPECT_FALSE(bench.news("GPU-a", 1));
  EXPECT_TRUE(bench.news("GPU-a"));
  bench.run(1s);
  EXPECT_TRUE(bench.news("GPU-a", 2) && bench.news("GPU-a", 3));
}

TEST(DcgmWatcher, AUuidThatTwoGpusHaveNamesNeither) {
  WatcherBench bench;
  bench.engine.gpus[1].uuid = "GPU-a";
  bench.need("GPU-a");
  bench.run(5s);
  EXPECT_FALSE(bench.news("GPU-a"));
  EXPECT_NE(bench.problem("GPU-a").find("does not have this GPU"), std::string::npos);
}

TEST(DcgmWatcher, NamesThatAreTakenAreOthers) {
  WatcherBench bench;
  bench.engine.faults.names_taken = 10;  // of field groups and groups
  bench.need("GPU-a");
  bench.run(5s);
  EXPECT_TRUE(bench.news("GPU-a"));
  EXPECT_EQ(bench.engine.open_groups, 1);
}

TEST(DcgmWatcher, AWatchThatFailsOnceIsTriedAgainWithinFiveSeconds) {
  WatcherBench bench;
  bench.engine.faults.watches_failed = 1;
  bench.need("GPU-a");
  bench.run(1s);
  EXPECT_FALSE(bench.news("GPU-a"));
  bench.run(4s);
  EXPECT_TRUE(bench.news("GPU-a"));
}

}  // namespace
}  // namespace derate
