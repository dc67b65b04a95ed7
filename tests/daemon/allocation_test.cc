// GPUs of a scheduler's jobs through the daemon, on simulated GPUs and virtual time: who is
// governed, what it has used, and what is left.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "house.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

struct SlurmHouse : House {
  explicit SlurmHouse(int gpus = 4, const Settings& settings = {}) : House(gpus) {
    for (int gpu = 0; gpu < gpus; ++gpu) work(gpu, "BWtest");
    allocations.file = home.path() + "/allocations.json";
    allocations.look = [this](const SchedulerJob& job) { return look(job.id); };
    allocations.ended_file = home.path() + "/jobs.db";
    allocations.notes = home.path() + "/notes";
    start(settings);
  }
  AllocationBegin request(const std::string& id, std::vector<int> gpus,
                          std::optional<double> delta = 0.1) {
    AllocationBegin out;
    out.job = {.id = id, .uid = 1000, .user = "ada", .account = "physics", .partition = "gpu"};
    for (const int gpu : gpus) out.gpus.push_back(uuid_of(gpu));
    if (delta) out.governed = true;
    out.delta = delta;
    return out;
  }
  Json begin(const AllocationBegin& wanted) { return parse_json(ask(request_text(wanted))); }
  Json end(const std::string& id) { return parse_json(ask(request_text(AllocationEnd{.id = id}))); }
  AllocationView job(const std::string& id) {
    const auto all =
        answer_of<AllocationsAnswer>(parse_json(call(9, request_text(AllocationList{.id = id}))));
    return all.ok() && !all->allocations.empty() ? all->allocations.front() : AllocationView{};
  }
  std::string governed() {
    std::string out;
    for (const ManagedGpu& gpu : worker->fleet().gpus()) out += gpu.governed ? '1' : '0';
    return out;
  }
  double joules(int gpu) { return sim(gpu).energy().value(); }

  std::function<JobLook(const std::string& id)> look = [](const std::string&) { return JobLook(); };
};

TEST(Allocations, GovernTheJobsGpusAndNoOthersUntilItsEpilog) {
  SlurmHouse house;
  EXPECT_EQ(house.begin(house.request("7", {1, 2}))["ok"], true);
  EXPECT_EQ(house.governed(), "0110");
  house.run(60s);
  EXPECT_TRUE(house.sim(1).locked() && house.sim(2).locked());
  EXPECT_FALSE(house.sim(0).locked() || house.sim(3).locked());
  const AllocationView running = house.job("7");
  EXPECT_EQ(running.policy, "assure");
  EXPECT_FALSE(running.ended);
  EXPECT_EQ(running.gpus[0].promised_performance_ratio, 0.9);
  EXPECT_EQ(house.end("7")["ok"], true);
  EXPECT_EQ(house.governed(), "0000");
  EXPECT_FALSE(house.sim(1).locked() || house.sim(2).locked());
  EXPECT_TRUE(house.left().empty());
  EXPECT_EQ(house.end("8")["code"], "not_found");
}

TEST(Allocations, HaveTheJoulesOfTheirTime) {
  SlurmHouse house;
  house.run(5s);
  const double before[] = {house.joules(0), house.joules(1)};
  EXPECT_EQ(house.begin(house.request("7", {0, 1}, std::nullopt))["ok"], true);
  EXPECT_EQ(house.governed(), "0000");
  house.run(30s);
  EXPECT_EQ(house.end("7")["ok"], true);
  const double used = house.joules(0) - before[0] + house.joules(1) - before[1];
  house.run(5s);
  const AllocationView ended = house.job("7");
  EXPECT_TRUE(ended.ended);
  EXPECT_EQ(ended.ended_by, "its epilog");
  ASSERT_TRUE(ended.energy_joules);
  EXPECT_NEAR(*ended.energy_joules / used, 1, 0.01);
  EXPECT_EQ(ended.gpus[0].source, "counter");
}

TEST(Allocations, GoOnWithTheNextDaemon) {
  SlurmHouse house;
  house.run(5s);
  const double before = house.joules(2);
  EXPECT_EQ(house.begin(house.request("7", {2}))["ok"], true);
  house.run(30s);
  house.worker.reset();
  EXPECT_FALSE(house.sim(2).locked());
  house.sim(2).advance_to(house.clock.now() + 20s);
  house.clock.advance(20s);
  house.start();
  house.run(20s);
  EXPECT_EQ(house.governed(), "0010");
  EXPECT_EQ(house.end("7")["ok"], true);
  const double used = house.joules(2) - before;
  house.run(5s);
  const AllocationView ended = house.job("7");
  ASSERT_TRUE(ended.energy_joules);
  EXPECT_NEAR(*ended.energy_joules / used, 1, 0.02);
  EXPECT_NEAR(ended.time_seconds, 70, 2);
}

TEST(Allocations, EndWithoutAnEpilogOnceTheJobHasGone) {
  SlurmHouse house;
  bool runs = true;
  house.look = [&](const std::string&) { return JobLook{.lives = runs}; };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(10s);
  EXPECT_EQ(house.governed(), "1000");
  runs = false;
  house.run(3s);
  EXPECT_EQ(house.governed(), "0000");
  EXPECT_EQ(house.job("7").ended_by, "neither the job nor its scheduler runs here any more");
}

// Between two steps a job has no control group, unless Slurm makes one for the whole job.
TEST(Allocations, GoOnBetweenTheStepsOfAJob) {
  SlurmHouse house;
  bool step = true;
  house.look = [&](const std::string&) { return JobLook{.lives = step, .scheduler_runs = true}; };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(5s);
  step = false;
  house.run(60s);
  EXPECT_EQ(house.governed(), "1000");
  step = true;
  house.run(5s);
  EXPECT_FALSE(house.job("7").ended);
  EXPECT_NEAR(house.job("7").time_seconds, 70, 2);
}

TEST(Allocations, EndWhereTheirGpuIsGivenToAnotherJob) {
  SlurmHouse house(1);
  bool step = true;
  house.look = [&](const std::string& id) {
    return JobLook{.lives = id == "8" || step, .scheduler_runs = true};
  };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(5s);
  step = false;
  house.run(5s);
  EXPECT_EQ(house.begin(house.request("8", {0}))["ok"], true);
  EXPECT_EQ(house.job("7").ended_by, "its GPU has been given to another job");
  EXPECT_EQ(house.governed(), "1");
}

TEST(Allocations, ThatEndedWithoutADaemonEndWithTheNext) {
  for (const bool note : {true, false}) {
    SlurmHouse house(1);
    bool runs = true;
    house.look = [&](const std::string&) { return JobLook{.lives = runs}; };
    EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
    house.run(5s);
    house.worker.reset();
    runs = false;
    if (note) {
      house.look = [&](const std::string&) { return JobLook{}; };
      std::filesystem::create_directories(house.home.path() + "/notes");
      EXPECT_TRUE(
          write_file_atomically(house.home.path() + "/notes/slurm-7", "", Durable::no).ok());
    }
    house.start();
    house.run(5s);
    EXPECT_TRUE(house.job("7").ended) << note;
    EXPECT_EQ(house.governed(), "0") << note;
    EXPECT_FALSE(std::filesystem::exists(house.home.path() + "/notes/slurm-7"));
  }
}

TEST(Allocations, AJobThatWasNeverSeenIsNotMissed) {
  SlurmHouse house;
  house.look = [](const std::string&) { return JobLook{.lives = false}; };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(60s);
  EXPECT_EQ(house.governed(), "1000");
}

TEST(Allocations, OfOneGpuForTwoJobsNeitherGoverns) {
  SlurmHouse house;
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  EXPECT_EQ(house.begin(house.request("8", {0, 1}))["ok"], true);
  EXPECT_EQ(house.governed(), "0100");
  EXPECT_NE(house.job("8").gpus[0].why.find("job 7 of ada has it, too"), std::string::npos);
  EXPECT_EQ(house.end("7")["ok"], true);
  house.run(1s);
  EXPECT_EQ(house.governed(), "1100");
}

TEST(Allocations, OfOneGpuForTwoJobsTheConfigurationGovernsNoMore) {
  Settings settings;
  settings.govern = true;
  SlurmHouse house(1, settings);
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  EXPECT_EQ(house.begin(house.request("8", {0}, std::nullopt))["ok"], true);
  EXPECT_EQ(house.governed(), "0");
  EXPECT_EQ(house.end("7")["ok"], true);
  house.run(1s);
  EXPECT_EQ(house.governed(), "1");
  EXPECT_EQ(house.worker->fleet().gpus()[0].assigned->origin, origins::configuration);
}

TEST(Allocations, LeaveWhatAnOperatorHasAssigned) {
  SlurmHouse house(1);
  EXPECT_EQ(parse_json(house.ask(request_text(PolicySet{.policy = "max-freq", .gpus = "0"})))["ok"],
            true);
  AllocationBegin request = house.request("7", {0}, std::nullopt);
  request.governed = false;
  EXPECT_EQ(house.begin(request)["ok"], true);
  EXPECT_EQ(house.worker->fleet().gpus()[0].assigned->origin, origins::command);
  EXPECT_NE(house.job("7").gpus[0].why.find("has assigned it"), std::string::npos);
}

TEST(Allocations, StepsThatSetClocksNeedTheRightsOfOff) {
  Settings settings;
  settings.govern = true;
  settings.scheduler.users = "root";
  SlurmHouse house(1, settings);
  house.look = [](const std::string&) { return JobLook{.lives = true, .sets_clocks = true}; };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(5s);
  EXPECT_EQ(house.governed(), "1");
  EXPECT_EQ(house.worker->fleet().gpus()[0].assigned->origin, origins::configuration);
}

TEST(Allocations, LoseNoMoreThanTheOperatorsAllow) {
  Settings settings;
  settings.govern = true;
  settings.policy_settings = {{"assure", "delta", "0.05", ""}};
  SlurmHouse house(2, settings);
  EXPECT_EQ(house.begin(house.request("7", {0}, 0.1))["ok"], true);
  EXPECT_NE(house.job("7").gpus[0].why.find("may lose 5 %"), std::string::npos)
      << house.job("7").gpus[0].why;
  EXPECT_EQ(house.worker->fleet().gpus()[0].assigned->origin, origins::configuration);
  EXPECT_EQ(house.begin(house.request("8", {1}, 0.02))["ok"], true);
  EXPECT_EQ(house.worker->fleet().gpus()[1].assigned->origin, origins::job);
}

TEST(Allocations, AreRefusedByUserAccountPartitionAndPolicy) {
  const std::vector<std::pair<std::function<void(Settings&)>, const char*>> kRules = {
      {[](Settings& s) { s.scheduler.users = "root"; }, "[scheduler] users is 'root'"},
      {[](Settings& s) { s.scheduler.accounts = "biology"; }, "account 'physics'"},
      {[](Settings& s) { s.scheduler.partitions = "cpu, long"; }, "partition 'gpu'"},
      {[](Settings& s) { s.scheduler.policies = "max-freq"; }, "may choose from max-freq"},
      {[](Settings& s) { s.max_delta = 0.05; }, "allowed are 5 %"},
  };
  for (const auto& [change, why] : kRules) {
    Settings settings;
    change(settings);
    SlurmHouse house(1, settings);
    EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
    EXPECT_EQ(house.governed(), "0") << why;
    EXPECT_NE(house.job("7").gpus[0].why.find(why), std::string::npos)
        << house.job("7").gpus[0].why;
    ASSERT_TRUE(house.job("7").energy_joules) << why;
  }
}

TEST(Allocations, HandsOffMeansThatNobodyGovernsTheGpu) {
  Settings settings;
  settings.govern = true;
  SlurmHouse house(2, settings);
  EXPECT_EQ(house.governed(), "11");
  AllocationBegin request = house.request("7", {0}, std::nullopt);
  request.hands_off = "Slurm sets the GPUs' clocks (--gpu-freq)";
  EXPECT_EQ(house.begin(request)["ok"], true);
  EXPECT_EQ(house.governed(), "01");
  EXPECT_EQ(house.end("7")["ok"], true);
  EXPECT_EQ(house.governed(), "11");
}

TEST(Allocations, OffLeavesTheGpuAlone) {
  Settings settings;
  settings.govern = true;
  SlurmHouse house(1, settings);
  AllocationBegin request = house.request("7", {0}, std::nullopt);
  request.governed = false;
  EXPECT_EQ(house.begin(request)["ok"], true);
  EXPECT_EQ(house.governed(), "0");
  EXPECT_EQ(house.end("7")["ok"], true);
  EXPECT_EQ(house.governed(), "1");
}

TEST(Allocations, AnOperatorsReleaseEndsTheGoverning) {
  SlurmHouse house(1);
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  EXPECT_EQ(parse_json(house.ask(request_text(Release{.gpus = "0"})))["ok"], true);
  house.run(10s);
  EXPECT_EQ(house.governed(), "0");
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_EQ(house.end("7")["ok"], true);
}

TEST(Allocations, AJobThatBeginsAgainIsAnother) {
  SlurmHouse house(1);
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(10s);
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(10s);
  EXPECT_EQ(house.governed(), "1");
  EXPECT_NEAR(house.job("7").time_seconds, 10, 1);
}

TEST(Allocations, RefuseWhatIsNoRequest) {
  SlurmHouse house(1);
  const auto refused = [&](auto change) {
    AllocationBegin request = house.request("7", {0});
    change(request);
    return house.begin(request)["code"] == "invalid_argument";
  };
  EXPECT_TRUE(refused([](auto& r) { r.job.id.clear(); }));
  EXPECT_TRUE(refused([](auto& r) { r.job.uid = -1; }));
  EXPECT_TRUE(refused([](auto& r) { r.gpus = {"0"}; }));
  EXPECT_TRUE(refused([](auto& r) { r.gpus.push_back(r.gpus.front()); }));
  EXPECT_TRUE(refused([](auto& r) { r.delta = 2; }));
  EXPECT_EQ(house.governed(), "0");
}

TEST(Allocations, OfASuspendedJobAreLeftAloneUntilItGoesOn) {
  SlurmHouse house(1);
  bool suspended = false;
  house.look = [&](const std::string&) { return JobLook{.lives = true, .suspended = suspended}; };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(5s);
  EXPECT_EQ(house.governed(), "1");
  suspended = true;
  house.run(2s);
  EXPECT_EQ(house.governed(), "0");
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_EQ(house.job("7").hands_off, "the job is suspended");
  suspended = false;
  house.run(2s);
  EXPECT_EQ(house.governed(), "1");
  EXPECT_EQ(house.job("7").hands_off, "");
  EXPECT_EQ(house.end("7")["ok"], true);
  EXPECT_EQ(house.governed(), "0");
}

TEST(Allocations, AreLeftAloneFromTheFirstStepThatSetsClocksToTheEnd) {
  Settings settings;
  settings.govern = true;
  SlurmHouse house(1, settings);
  bool sets_clocks = true;
  house.look = [&](const std::string&) {
    return JobLook{.lives = true, .sets_clocks = std::exchange(sets_clocks, false)};
  };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(5s);
  EXPECT_EQ(house.governed(), "0");
  EXPECT_NE(house.job("7").hands_off.find("--gpu-freq"), std::string::npos);
  EXPECT_EQ(house.end("7")["ok"], true);
  EXPECT_EQ(house.governed(), "1");
}

// However jobs begin, end and share: the accounts of all jobs and that of no job are what
// the GPU has used.
TEST(Allocations, AddUpToWhatTheGpuHasUsed) {
  SlurmHouse house(1);
  const auto begin = [&](const char* id) {
    EXPECT_EQ(house.begin(house.request(id, {0}, std::nullopt))["ok"], true);
  };
  const auto end = [&](const char* id) { EXPECT_EQ(house.end(id)["ok"], true); };
  begin("1");
  const double before = house.joules(0);
  house.run(7300ms);
  begin("2");
  house.run(5100ms);
  end("1");
  house.run(3700ms);
  end("2");
  house.run(2900ms);
  begin("3");
  house.run(4100ms);
  end("3");
  const double used = house.joules(0) - before;
  house.run(5s);
  const auto all =
      answer_of<AllocationsAnswer>(parse_json(house.call(9, request_text(AllocationList{}))));
  ASSERT_TRUE(all.ok());
  double jobs = 0;
  for (const AllocationView& each : all->allocations) {
    EXPECT_TRUE(each.settled);
    jobs += each.energy_joules.value_or(-1e9);
  }
  EXPECT_EQ(all->allocations.size(), 3u);
  const double idle_since_end = all->no_job[0].energy_joules.value_or(-1e9);
  const double all_used = house.joules(0) - before;
  EXPECT_NEAR((jobs + idle_since_end) / all_used, 1, 0.01);
  EXPECT_LT(jobs, used);
  EXPECT_NEAR(*house.job("2").gpus[0].shared_seconds, 5.1, 0.1);
}

TEST(Allocations, ThatHaveEndedAreKept) {
  SlurmHouse house(1);
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(20s);
  EXPECT_EQ(house.end("7")["ok"], true);
  house.run(5s);
  const auto kept = read_jobs(house.home.path() + "/jobs.db", {.account = "physics"});
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  ASSERT_EQ(kept->size(), 1u);
  EXPECT_EQ(kept->front().job, "7");
  const auto document = answer_of<AllocationView>(parse_json(kept->front().document));
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->energy_joules, kept->front().energy_joules);
  EXPECT_EQ(document->gpus[0].promised_performance_ratio, 0.9);
  EXPECT_TRUE(document->promise_kept);
}

TEST(Allocations, AnEpilogAfterTheEndIsAnswered) {
  SlurmHouse house(1);
  bool runs = true;
  house.look = [&](const std::string&) { return JobLook{.lives = runs}; };
  EXPECT_EQ(house.begin(house.request("7", {0}))["ok"], true);
  house.run(5s);
  runs = false;
  house.run(5s);
  const Json answer = house.end("7");
  EXPECT_EQ(answer["ok"], true);
  EXPECT_EQ(answer["ended_by"], "neither the job nor its scheduler runs here any more");
}

TEST(Allocations, OnlyOperatorsReportJobs) {
  SlurmHouse house(1);
  const Json answer = parse_json(house.call(9, request_text(house.request("7", {0}))));
  EXPECT_EQ(answer["ok"], false);
  EXPECT_EQ(house.governed(), "0");
}

}  // namespace
}  // namespace derate::cli
