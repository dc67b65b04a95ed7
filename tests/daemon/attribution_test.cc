// Attribution in a worker on virtual time: who used what is kept, and adds up to the counter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/json.h"
#include "house.h"
#include "store/usage_bill.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

// A house whose processes are told apart by their numbers, and what its counter said.
class Attribution : public testing::Test {
 protected:
  Attribution() {
    house.attribution.file = file;
    house.attribution.where = BackgroundWorker::Where::at_once;
    house.attribution.name = [this](const GpuId&, const Tenancy& tenancy, const SaidJobs& jobs) {
      TenantNames out;
      for (const GpuProcess& process : tenancy.processes) {
        NamedTenant tenant{"pid:" + std::to_string(process.pid), {}};
        tenant.labels.pid = process.pid;
        tenant.labels.user = users[process.pid];
        tenant.labels.process = "train";
        if (const auto job = jobs.find(process.pid); job != jobs.end())
          tenant.labels.job = job->second.job;
        out.processes.push_back(tenant);
      }
      return out;
    };
    house.attribution.on_reading = [this](const GpuId&, const Tenancy& tenancy, const TenantNames&,
                                          const ClockSummary& watched) {
      clocks += watched.clocks;
      ++readings;
      if (!first_mj) first_mj = millijoules(tenancy);
      last_mj = millijoules(tenancy);
    };
    house.work(0, "GeMM");
    for (const auto& [pid, user] : users) house.person(0, pid, 1000);
  }
  static std::int64_t millijoules(const Tenancy& tenancy) {
    return std::llround(tenancy.board.energy.value().value() * 1000);
  }
  Usage kept() const {
    return *read_usage(file, WallTime{}, house.clock.wall_now() + std::chrono::hours(1));
  }
  Json told() { return parse_json(house.call(1, R"({"command":"attribution"})")); }

  House house{1};
  std::string file = house.folder + "/state/usage.db";
  std::map<std::int64_t, std::string> users{{10, "alice"}, {11, "bob"}};
  std::optional<std::int64_t> first_mj;
  std::int64_t last_mj = 0;
  int clocks = 0, readings = 0;  // watched in between, and made
};

std::int64_t sum_of(const Bill& bill) {
  std::int64_t out = bill.boards.unallocated_mj;
  for (const BillLine& line : bill.lines) out += line.sums.total_mj();
  return out;
}

TEST_F(Attribution, ABillAddsUpToTheCounter) {
  house.start();
  house.run(150s);
  house.trouble(0).processes->pop_back();  // bob ends
  house.run(30s);
  ASSERT_TRUE(house.worker->stop().ok());
  const Bill bill = make_bill(kept(), BillBy::user);
  ASSERT_EQ(bill.lines.size(), 2u);
  EXPECT_EQ(bill.lines[0].name, "alice");
  EXPECT_EQ(bill.lines[1].name, "bob");
  EXPECT_GT(bill.boards.board_mj, 150 * 178 * 1000);  // of GeMM on a V100
  EXPECT_EQ(bill.boards.board_mj, last_mj - *first_mj);
  EXPECT_EQ(sum_of(bill), bill.boards.board_mj);
  EXPECT_EQ(bill.boards.lost_ms, 0);
  // Of the first ticks, at least, little can have been known.
  for (const BillLine& line : bill.lines) EXPECT_GT(line.sums.prior_mj, 0) << line.name;
}

// The next run begins at what a program drew in this one, as far as that was found out.
TEST_F(Attribution, ARestartKeepsWhatProgramsDrew) {
  house.trouble(0).processes->pop_back();  // bob is not here
  house.trouble(0).processes->front().sm_utilisation = Fraction(1);
  house.start();
  house.run(120s);
  ASSERT_TRUE(house.worker->stop().ok());
  const ProgramsByProduct kept = *UsageStore(file).programs();
  ASSERT_EQ(kept.size(), 1u);
  const ProgramWatts& first = kept.begin()->second.at(0);
  EXPECT_EQ(first.id, (ProgramId{"alice", "train"}));
  EXPECT_GT(first.runs, 0.5);
  EXPECT_GT(first.mean_w, 50);  // GeMM on a V100
}

// On the bill is what the policy said, divided and added up again.
TEST_F(Attribution, ABillHasWhatThePolicySaved) {
  Settings settings;
  settings.govern = true;
  settings.attribute_interval_s = 10;
  Saving told;
  house.note = [&](const Record& record) {
    if (record.saving) told += *record.saving;
  };
  house.start(settings);
  house.run(155s);  // ends between two ticks
  ASSERT_TRUE(house.worker->stop().ok());
  const Bill bill = make_bill(kept(), BillBy::user);
  ASSERT_EQ(bill.lines.size(), 2u);
  const SavingSums whole = saving_sums(told);
  ASSERT_GT(whole.at_highest_mj, whole.energy_mj);
  ASSERT_TRUE(bill.savings.contains("curves/1"));
  const SavingSums& billed = bill.savings.at("curves/1");
  EXPECT_NEAR(static_cast<double>(billed.energy_mj), static_cast<double>(whole.energy_mj), 2);
  EXPECT_NEAR(static_cast<double>(billed.at_highest_mj), static_cast<double>(whole.at_highest_mj),
              2);
  EXPECT_NEAR(static_cast<double>(billed.sd_mj), static_cast<double>(whole.sd_mj), 2);
  for (const BillLine& line : bill.lines) EXPECT_TRUE(bill_saving(line.sums.savings)) << line.name;
}

TEST_F(Attribution, WhatADryRunWouldSaveIsOnNoBill) {
  Settings settings;
  settings.govern = settings.dry_run = true;
  house.start(settings);
  house.run(150s);
  EXPECT_TRUE(first_gpu(house)["saving"].is_object());
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_TRUE(make_bill(kept(), BillBy::user).savings.empty());
}

// Of processes whose environment the daemon may not read.
TEST_F(Attribution, ABillKnowsTheJobThatWasAnnounced) {
  house.start();
  house.run(2s);
  house.beat(1000, 10, "job=77");
  house.beat(1001, 11, "job=78 pid=10");  // of another user: not believed
  house.run(150s);
  ASSERT_TRUE(house.worker->stop().ok());
  const Bill bill = make_bill(kept(), BillBy::job);
  const auto line = std::find_if(bill.lines.begin(), bill.lines.end(),
                                 [](const BillLine& one) { return one.name == "77"; });
  ASSERT_NE(line, bill.lines.end());
  EXPECT_GT(line->sums.total_mj(), 0);
  for (const BillLine& one : bill.lines) EXPECT_NE(one.name, "78");
}

// The governor reads ten times a second: all that is between two ticks is theirs.
TEST_F(Attribution, TheClockIsWatchedBetweenTheTicks) {
  house.start();
  house.run(60s);
  EXPECT_GT(readings, 55);
  EXPECT_NEAR(clocks, 10 * readings, 15);
}

TEST_F(Attribution, AKilledWorkerLosesASecondOrTwo) {
  house.start();
  house.run(150s);
  house.worker.reset();  // nothing is given back and nothing written, as by SIGKILL
  const std::int64_t before = make_bill(kept(), BillBy::user).boards.board_mj;
  EXPECT_GE(before, (last_mj - *first_mj) * 147 / 150);
  EXPECT_LE(before, last_mj - *first_mj);
  first_mj.reset();
  house.start();
  house.run(30s);
  ASSERT_TRUE(house.worker->stop().ok());
  const Bill bill = make_bill(kept(), BillBy::process);
  EXPECT_EQ(bill.boards.board_mj, before + last_mj - *first_mj);
  EXPECT_EQ(sum_of(bill), bill.boards.board_mj);
  EXPECT_EQ(bill.lines.size(), 2u);  // of the same keys
}

// Nobody's energy is written each ten seconds, and a killed worker loses no more than that of it.
TEST_F(Attribution, AnIdleGpuIsWrittenSeldom) {
  house.trouble(0).processes->clear();
  house.start();
  house.run(12s);
  std::set<std::int64_t> written;
  for (int i = 0; i < 60; ++i) {
    house.run(1s);
    written.insert(make_bill(kept(), BillBy::user).boards.board_mj);
  }
  EXPECT_GE(written.size(), 5u);
  EXPECT_LE(written.size(), 8u);
  house.worker.reset();
  EXPECT_GE(*written.rbegin(), (last_mj - *first_mj) * 60 / 72);
}

// ... and surveyed seldom, if its driver takes CPU time.
TEST_F(Attribution, AGpuThatNobodyUsesIsSurveyedEachFiveSeconds) {
  house.trouble(0).costs = std::make_shared<DriverCosts>();
  house.trouble(0).costs->add(derate::DriverCall::sensors, 60us);
  house.sim(0).stop();
  const std::vector<GpuProcess> people =
      *std::exchange(house.trouble(0).processes, std::vector<GpuProcess>{});
  house.start();
  house.run(20s);
  readings = 0;
  house.run(50s);
  EXPECT_NEAR(readings, 10, 1);
  house.work(0, "GeMM");
  house.trouble(0).processes = people;
  readings = 0;
  house.run(3s);
  EXPECT_GE(readings, 2);
  house.run(7s);
  EXPECT_GE(readings, 8);
  ASSERT_TRUE(house.worker->stop().ok());
  const Bill bill = make_bill(kept(), BillBy::user);
  EXPECT_EQ(bill.lines.size(), 2u);
  EXPECT_EQ(sum_of(bill), bill.boards.board_mj);
}

TEST_F(Attribution, AGpuThatIsLostIsToldOnceAndMissedTimeIsNotLost) {
  house.start();
  house.run(10s);
  house.trouble(0).faults.gpu_lost = true;
  house.run(30s);
  house.trouble(0).faults.gpu_lost = false;
  house.run(30s);
  EXPECT_EQ(std::count_if(house.logged.begin(), house.logged.end(),
                          [](const std::string& text) {
                            return text.find("not attributed") != std::string::npos;
                          }),
            1);
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(make_bill(kept(), BillBy::user).boards.board_mj, last_mj - *first_mj);
}

// One that comes and goes is told of as seldom as one that stays away.
TEST_F(Attribution, AGpuThatComesAndGoesFillsNoLog) {
  house.start();
  house.run(10s);
  const auto told = [&] {
    return std::count_if(house.logged.begin(), house.logged.end(), [](const std::string& text) {
      return text.find("not attributed") != std::string::npos;
    });
  };
  for (int i = 0; i < 5; ++i) {
    house.trouble(0).faults.gpu_lost = true;
    house.run(20s);
    house.trouble(0).faults.gpu_lost = false;
    house.run(20s);
  }
  EXPECT_EQ(told(), 1);
  EXPECT_GT(readings, 50);
  house.run(10min);
  house.trouble(0).faults.gpu_lost = true;
  house.run(20s);
  EXPECT_EQ(told(), 2);
}

// Whole GPUs, until an answer has enough tenants.
TEST(AttributionPages, HoldSomeGpusAtATime) {
  House house(3);
  house.attribution.where = BackgroundWorker::Where::at_once;
  house.attribution.name = [](const GpuId&, const Tenancy& tenancy, const SaidJobs&) {
    TenantNames out;
    for (const GpuProcess& process : tenancy.processes)
      out.processes.push_back({"pid:" + std::to_string(process.pid), {}});
    return out;
  };
  for (int gpu = 0; gpu < 3; ++gpu)
    for (int i = 0; i < 40; ++i) house.person(gpu, 1000 * (gpu + 1) + i, 1000);
  house.start();
  house.run(5s);
  const Json first = parse_json(house.call(1, R"({"command":"attribution"})"));
  ASSERT_TRUE(first["ok"]) << first;
  ASSERT_EQ(first["gpus"].size(), 2u);
  EXPECT_EQ(first["gpus"][1]["tenants"].size(), 40u);
  EXPECT_EQ(first["more_after"], House::uuid(1));
  const Json next =
      parse_json(house.call(1, R"({"command":"attribution","after":")" + House::uuid(1) + "\"}"));
  ASSERT_EQ(next["gpus"].size(), 1u);
  EXPECT_EQ(next["gpus"][0]["uuid"], House::uuid(2));
  EXPECT_FALSE(next.contains("more_after"));
  const Json none = parse_json(house.call(1, R"({"command":"attribution","after":"GPU-x"})"));
  EXPECT_EQ(none["code"], "not_found");
}

TEST_F(Attribution, WhatCannotBeWrittenIsWrittenLater) {
  house.attribution.file = house.folder + "/place/usage.db";
  std::ofstream(house.folder + "/place") << "in the way";
  house.start();
  house.run(200s);
  EXPECT_TRUE(house.has_logged("what was used is not kept"));
  EXPECT_EQ(std::count_if(
                house.logged.begin(), house.logged.end(),
                [](const std::string& text) { return text.find("not kept") != std::string::npos; }),
            1);
  std::filesystem::remove(house.folder + "/place");
  file = house.attribution.file;
  house.run(61s);
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(make_bill(kept(), BillBy::user).boards.board_mj, last_mj - *first_mj);
}

TEST_F(Attribution, WithoutProcessesNobodyBearsIt) {
  house.trouble(0).processes->clear();
  house.start();
  house.run(10s);
  const Json gpu = told()["gpus"][0];
  EXPECT_TRUE(gpu["tenants"].empty());
  EXPECT_GT(gpu["energy_joules"], 1000.0);
  EXPECT_EQ(gpu["energy_joules"], gpu["unallocated_joules"]);
}

TEST_F(Attribution, SwitchedOffNothingIsReadOrKept) {
  Settings settings;
  settings.attribute = false;
  house.start(settings);
  house.run(100s);
  EXPECT_FALSE(first_mj);
  EXPECT_EQ(told()["enabled"], false);
  settings.attribute = true;
  settings.idle_rule = "equal";
  house.worker->reload(settings);
  house.run(5s);
  EXPECT_TRUE(first_mj);
  EXPECT_EQ(told()["gpus"][0]["idle_rule"], "equal");
}

// What is told adds up to the millijoule, whoever has ended.
TEST_F(Attribution, WhatIsToldAddsUp) {
  house.start();
  house.run(20s);
  house.trouble(0).processes->pop_back();
  house.run(20s);
  const Json gpu = told()["gpus"][0];
  const auto mj = [](const Json& joules) { return std::llround(joules.get<double>() * 1000); };
  std::int64_t sum = mj(gpu["unallocated_joules"]) + mj(gpu["ended_joules"]);
  for (const Json& tenant : gpu["tenants"]) sum += mj(tenant["energy_joules"]);
  EXPECT_EQ(sum, mj(gpu["energy_joules"]));
  EXPECT_GT(mj(gpu["ended_joules"]), 1000 * 1000);
  EXPECT_EQ(mj(gpu["energy_joules"]), last_mj - *first_mj);
}

// The same where answers come rounds later, as those of a real driver's thread do.
class LateAttribution : public Attribution, public testing::WithParamInterface<int> {
 protected:
  LateAttribution() { house.answer_later(GetParam()); }
  int told_failures() const {
    return static_cast<int>(std::count_if(
        house.logged.begin(), house.logged.end(),
        [](const std::string& text) { return text.find("not attributed") != std::string::npos; }));
  }
  // What was billed is what the counter counted between the first reading and the last, once.
  void expect_whole_bill() {
    ASSERT_TRUE(house.worker->stop().ok());
    const Bill bill = make_bill(kept(), BillBy::user);
    EXPECT_EQ(bill.boards.board_mj, last_mj - *first_mj);
    EXPECT_EQ(sum_of(bill), bill.boards.board_mj);
  }
};
INSTANTIATE_TEST_SUITE_P(Rounds, LateAttribution, testing::Values(0, 1, 3, 12));

TEST_P(LateAttribution, NoTickIsLostAndNoEnergyIsCountedTwice) {
  house.start();
  house.run(150s);
  // A survey waits for a list of processes and then for its own answer: 2.4 s where each takes 1.2.
  EXPECT_GE(readings, GetParam() > 5 ? 45 : 148);
  EXPECT_EQ(told_failures(), 0);
  expect_whole_bill();
}

// New sources may lie where the old ones lay: what was begun of those is not asked of these.
TEST_P(LateAttribution, APauseAndAResumeInOneRoundLoseNothing) {
  house.start();
  for (int i = 0; i < 25; ++i) {
    house.run(std::chrono::milliseconds(900 + 100 * (i % 4)));
    EXPECT_NE(house.ask(R"({"command":"pause"})").find(R"("ok":true)"), std::string::npos);
    EXPECT_NE(house.ask(R"({"command":"resume"})").find(R"("ok":true)"), std::string::npos);
    const int before = readings;
    house.run(6s);
    EXPECT_GE(readings, before + (GetParam() > 5 ? 1 : 4));
  }
  EXPECT_EQ(told_failures(), 0);
  expect_whole_bill();
}

// And one that comes and goes is told of no more often.
TEST_P(LateAttribution, AGpuThatIsLostWhileACallIsUnderWayIsToldOnce) {
  house.start();
  for (int i = 0; i < 4; ++i) {
    house.run(10s + i * 300ms);
    house.trouble(0).faults.gpu_lost = true;
    house.run(30s);
    EXPECT_EQ(told_failures(), 1);
    house.trouble(0).faults.gpu_lost = false;
    house.run(30s);
  }
  expect_whole_bill();
}

TEST_P(LateAttribution, ACallThatHangsIsToldOnceAndItsTimeIsNotLost) {
  if (GetParam() == 0) GTEST_SKIP() << "a source that answers at once cannot hang";
  house.start();
  house.run(20s);
  house.trouble(0).hangs = true;
  house.run(30s);
  EXPECT_EQ(told_failures(), 1);
  house.trouble(0).hangs = false;
  const int before = readings;
  house.run(30s);
  EXPECT_GT(readings, before + 5);
  EXPECT_EQ(told_failures(), 1);
  expect_whole_bill();
}

}  // namespace
}  // namespace derate::cli
