// The worker over GPUs whose calls run on a thread of each, as those of a real driver do: answers
// come late, and one call waits for the other.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "base/json.h"
#include "house.h"
#include "store/usage_bill.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

// A GPU with a job of user 1000's, whose energy is attributed; calls take that long each.
struct ThreadedHouse : House {
  explicit ThreadedHouse(std::function<Duration(DriverCall)> takes, int gpus = 1) : House(gpus) {
    driver.takes = std::move(takes);
    attribution.file = folder + "/state/usage.db";
    attribution.where = BackgroundWorker::Where::at_once;
    attribution.name = [](const GpuId&, const Tenancy& tenancy, const SaidJobs&) {
      TenantNames out;
      for (const GpuProcess& process : tenancy.processes)
        out.processes.push_back({"pid:" + std::to_string(process.pid), {}});
      return out;
    };
    attribution.on_reading = [this](const GpuId& gpu, const Tenancy& tenancy, const auto&...) {
      if (gpu.index != 0) return;
      ++surveys;
      last = tenancy.board.energy.value();
      if (!first) first = last;
    };
    for (int gpu = 0; gpu < gpus; ++gpu) {
      work(gpu, "GeMM");
      person(gpu, 17 + gpu, 1000).asked = "0.07";
    }
  }
  ThreadedHouse(const ThreadedHouse&) = delete;
  void govern(const char* policy) {
    Settings settings;
    settings.govern = true;
    settings.policy = policy;
    start(settings);
  }
  // What is on the bill is what the counter of GPU 0 counted, to the millijoule.
  bool is_billed_whole() const {
    const auto usage =
        read_usage(attribution.file, WallTime{}, clock.wall_now() + 1h, std::vector{uuid_of(0)});
    return usage.ok() && first &&
           make_bill(*usage, BillBy::user).boards.board_mj == mj(*last) - mj(*first);
  }
  static std::int64_t mj(Joules energy) { return std::llround(energy.value() * 1000); }

  int surveys = 0;
  std::optional<Joules> first, last;
};

class ThreadedWorker : public testing::TestWithParam<Duration> {};
INSTANTIATE_TEST_SUITE_P(CallsTake, ThreadedWorker, testing::Values(0ms, 30ms, 250ms, 1300ms),
                         [](const auto& each) { return std::to_string(each.param / 1ms) + "ms"; });

// A list of processes and a survey of tenants come due in one round: neither is refused because the
// thread has the other one, and no tick of attribution is lost.
TEST_P(ThreadedWorker, TwoCallsInOneRoundAreBothAnswered) {
  ThreadedHouse house([](DriverCall) { return GetParam(); });
  house.govern("assure");
  house.run(120s);
  EXPECT_EQ(house.driver.overlaps > 0, GetParam() > 0ms);
  EXPECT_EQ(house.driver.failures, 0);
  EXPECT_GE(house.surveys, GetParam() > 1s ? 30 : 110);
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_TRUE(house.is_billed_whole());
}

TEST_P(ThreadedWorker, APromiseIsHeardAndGpusAreGivenBack) {
  ThreadedHouse house([](DriverCall) { return GetParam(); }, 2);
  house.govern("assure");
  house.run(30s);
  EXPECT_DOUBLE_EQ(first_gpu(house)["promised_performance_ratio"].get<double>(), 0.93);
  EXPECT_TRUE(house.sim(0).locked() && house.sim(1).locked());
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_FALSE(house.sim(0).locked() || house.sim(1).locked());
  EXPECT_TRUE(house.left().empty());
}

// New sources take the place of those whose calls are under way.
TEST_P(ThreadedWorker, WhatWasBegunOfAClosedGpuIsDropped) {
  ThreadedHouse house([](DriverCall) { return GetParam(); });
  house.govern("efficient-fix");
  for (int i = 0; i < 10; ++i) {
    house.run(900ms + i * 70ms);
    EXPECT_NE(house.ask(R"({"command":"pause"})").find(R"("ok":true)"), std::string::npos);
    EXPECT_EQ(house.trouble(0).open, 0);
    EXPECT_FALSE(house.sim(0).locked());
    EXPECT_NE(house.ask(R"({"command":"resume"})").find(R"("ok":true)"), std::string::npos);
    const int before = house.surveys;
    house.run(8s);
    EXPECT_GT(house.surveys, before);
  }
  EXPECT_EQ(house.driver.failures, 0);
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_TRUE(house.is_billed_whole());
}

RC_GTEST_PROP(ThreadedWorkerProperty, WhateverCallsTakeNothingIsLost, ()) {
  const auto times = *rc::gen::container<std::vector<int>>(20, rc::gen::inRange(0, 900));
  std::size_t at = 0;
  ThreadedHouse house([&](DriverCall) { return times[at++ % times.size()] * 1ms; });
  house.govern("efficient-fix");
  // A round that a read holds up lasts as long as the two calls before it, and a tick.
  for (const Instant end = house.clock.now() + 20s; house.clock.now() < end;) {
    const Instant before = house.clock.now();
    RC_ASSERT(house.round());
    RC_ASSERT(house.clock.now() - before <= 2 * 900ms + 1s);
  }
  RC_ASSERT(house.driver.failures == 0);
  RC_ASSERT(house.surveys >= 5);
  RC_ASSERT(house.worker->stop().ok());
  RC_ASSERT(house.is_billed_whole());
}

}  // namespace
}  // namespace derate::cli
