// What the worker asks of the machine, it asks beside its loop: of a machine that never answers.
#include "service/workloads/workload_tracker.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "base/json.h"
#include "base/text.h"
#include "house.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

// A place where whoever comes waits until the test is over.
class Swamp {
 public:
  void stay() {
    std::unique_lock lock(mutex_);
    ++in_;
    news_.notify_all();
    news_.wait(lock, [&] { return drained_; });
    --in_;
    news_.notify_all();
  }
  void await(int guests) {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return in_ >= guests; });
  }
  void drain() {
    std::unique_lock lock(mutex_);
    drained_ = true;
    news_.notify_all();
    news_.wait(lock, [&] { return in_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  int in_ = 0;
  bool drained_ = false;
};

// A house whose readers are asked on threads, in real time, while its loop's time is virtual. What
// the readers tell is set before it starts.
class StuckMachine : public testing::Test {
 protected:
  StuckMachine() {
    house.tracker.where = BackgroundWorker::Where::on_a_thread;
    person(17);
  }
  ~StuckMachine() override { swamp->drain(); }

  // The readers outlive the house: what they tell is theirs.
  void person(std::int64_t number) {
    house.person(0, number, 1000);
    const auto of = [people = house.people](std::int64_t pid) {
      const auto at = people.find(pid);
      return at != people.end() ? std::optional(at->second) : std::nullopt;
    };
    house.tracker.readers = {};
    house.tracker.readers.facts = of;
    house.tracker.readers.start = [of](std::int64_t pid) {
      const auto facts = of(pid);
      return facts ? std::optional(facts->started) : std::nullopt;
    };
    house.tracker.readers.ancestors = [](const auto&) { return std::vector<Ancestor>(); };
    house.tracker.readers.asked = [](std::int64_t) { return ""; };
    house.tracker.readers.hold = [](std::int64_t) { return ProcessHandle(); };
  }

  Settings settings() {
    Settings out;
    out.policy = "assure";
    out.govern = true;
    return out;
  }
  Json gpu() { return parse_json(*read_file(house.folder + "/run/state.json"))["gpus"][0]; }
  // Rounds until it holds: a thread needs its time, and nothing else is waited for.
  template <class F>
  bool comes(F holds) {
    for (int i = 0; i < 5000; ++i) {
      if (holds()) return true;
      (void)house.round();
      real_.sleep_until(real_.now() + 1ms);
    }
    return false;
  }

  std::shared_ptr<Swamp> swamp = std::make_shared<Swamp>();
  House house{1};

 private:
  SystemClock real_;
};

TEST_F(StuckMachine, ProcThatNeverAnswersHoldsNoRoundUp) {
  house.tracker.readers.facts = [swamp = swamp](std::int64_t) {
    swamp->stay();
    return std::optional<ProcessFacts>();
  };
  house.start(settings());
  for (int i = 0; i < 100; ++i) {
    house.beat(1000, 17, "done=" + std::to_string(i));
    house.beat(1001, static_cast<pid_t>(100 + i), "done=1 pid=17");
    (void)house.round();
  }
  swamp->await(1);
  house.run(60s);
  EXPECT_TRUE(house.sim(0).locked() || gpu().contains("reason"));
  EXPECT_FALSE(gpu().contains("beat_done"));  // not known yet whose it is
  EXPECT_TRUE(house.worker->stop().ok());
}

TEST_F(StuckMachine, BeatsThatWaitAreNoMoreThanSoMany) {
  house.tracker.readers.facts = [swamp = swamp](std::int64_t) {
    swamp->stay();
    return std::optional<ProcessFacts>();
  };
  house.start(settings());
  for (std::uint32_t uid = 1; uid <= 10; ++uid)
    for (int i = 0; i < 300; ++i) house.beat(uid, static_cast<pid_t>(1000 + uid), "done=1");
  house.run(2s);
  const Json beats = parse_json(*read_file(house.folder + "/run/state.json"))["beats"];
  EXPECT_EQ(beats["too_many"], 3000 - static_cast<int>(WorkloadTracker::kMostWaiting));
}

TEST_F(StuckMachine, AUsersDatabaseThatIsAwayHoldsNeitherStartNorReloadUp) {
  house.tracker.readers.user = [swamp = swamp](const std::string&) {
    swamp->stay();
    return Result<std::optional<std::uint32_t>>(std::optional<std::uint32_t>(1000));
  };
  Settings with = settings();
  with.jobs = {{"ann's", "ann", "", "", 0.02, "derate.toml:1:1"}};
  house.start(with);
  house.run(5s);
  with.jobs.push_back({"rest", "", "", "batch", {}, "derate.toml:5:1"});
  house.worker->reload(with);
  house.run(5s);
  // It may be Ann's: the stricter of both holds until it is known.
  ASSERT_TRUE(comes([&] { return gpu().contains("promise_from"); }));
  EXPECT_EQ(gpu()["promised_performance_ratio"], 0.98);
  swamp->drain();
  ASSERT_TRUE(comes([&] { return gpu()["promise_from"] == "ann's"; }));
}

TEST_F(StuckMachine, AUserWhoIsNotKnownYetComesLater) {
  house.tracker.readers.user = [swamp = swamp](const std::string& name) {
    if (name == "ann") swamp->stay();
    return Result<std::optional<std::uint32_t>>(name == "ann" ? std::optional<std::uint32_t>(2000)
                                                              : std::nullopt);
  };
  Settings with = settings();
  with.jobs = {{"ann's", "ann", "", "", 0.02, "derate.toml:1:1"},
               {"bob's", "bob", "", "", 0.03, "derate.toml:5:1"},
               {"rest", "", "", "batch", {}, "derate.toml:9:1"}};
  house.start(with);
  house.run(2s);
  swamp->drain();
  ASSERT_TRUE(
      comes([&] { return house.has_logged("derate.toml:5:1: this machine has no user 'bob'"); }));
  ASSERT_TRUE(comes([&] { return gpu()["promise_from"] == "rest"; }));  // it is not Ann's
}

TEST_F(StuckMachine, AnEnvironmentThatHangsIsGivenUpAndTheOthersAreHeard) {
  person(18);
  house.tracker.readers.asked = [swamp = swamp](std::int64_t pid) -> std::string {
    if (pid == 17) swamp->stay();
    return "0.04";
  };
  house.start(settings());
  ASSERT_TRUE(comes([&] { return gpu()["max_loss_ratio"] == 0.04; }));
  // Whose environment hangs may still say it himself, and beat.
  house.beat(1000, 17, "delta=0.01");
  house.beat(1000, 17, "done=5");
  ASSERT_TRUE(comes([&] { return gpu()["max_loss_ratio"] == 0.01; }));
}

TEST_F(StuckMachine, AUserWhoCannotBeLookedUpIsTriedAgain) {
  house.tracker.where = BackgroundWorker::Where::at_once;
  int asked = 0;
  house.tracker.readers.user =
      [&asked](const std::string&) -> Result<std::optional<std::uint32_t>> {
    if (++asked == 1) return Error{Errc::io, "user 'ann' cannot be looked up: no answer"};
    return std::optional<std::uint32_t>(1000);
  };
  Settings with = settings();
  with.jobs = {{"ann's", "ann", "", "", 0.02, "derate.toml:1:1"}};
  house.start(with);
  house.run(5s);
  EXPECT_TRUE(house.has_logged("derate.toml:1:1: user 'ann' cannot be looked up: no answer"));
  EXPECT_FALSE(gpu().contains("promise_from") && gpu()["promise_from"] == "ann's");
  house.run(WorkloadTracker::kUsersAgain + 2s);
  EXPECT_EQ(gpu()["promise_from"], "ann's");
  EXPECT_EQ(asked, 2);
}

// --- a beat's price ------------------------------------------------------------------------------

TEST(WorkDeskBeats, CostNoEnvironment) {
  House house(1);
  int environments = 0, ancestors = 0;
  house.tracker.readers.asked = [&](std::int64_t) { return ++environments, std::string(); };
  house.tracker.readers.ancestors = [&](const ProcessFacts&) {
    return ++ancestors, std::vector<Ancestor>();
  };
  house.person(0, 17, 1000);
  house.start();
  house.run(3s);
  EXPECT_EQ(environments, 1);  // of the process that the driver lists
  EXPECT_EQ(ancestors, 1);
  ProcessFacts& bob = house.people[99];
  bob.pid = bob.session = 99;
  bob.uid = 1001;
  for (int i = 0; i < 1000; ++i) {
    house.beat(1001, 99, "done=" + std::to_string(i));
    house.beat(1001, 99, "done=1 pid=17");
    if (i % 20 == 0) (void)house.round();
  }
  house.run(3s);
  EXPECT_EQ(environments, 1);
  EXPECT_EQ(ancestors, 1);
}

// --- what is announced ---------------------------------------------------------------------------

TEST(WorkDeskAnnouncements, StandInForAnEnvironmentThatMayNotBeRead) {
  House house(1);
  Settings settings;
  settings.policy = "assure";
  settings.govern = true;
  house.start(settings);
  ProcessFacts& shell = house.people[9];
  shell.pid = shell.session = shell.group = 9;
  shell.uid = 1000;
  house.beat(1000, 9, "delta=inference job=12");  // before its work is on a GPU
  house.beat(1000, 9, "delta=0.4 pid=17");        // of nobody yet
  house.run(30s);
  ProcessFacts& work = house.person(0, 17, 1000);
  work.session = 9;
  work.ancestors = {9};
  house.run(3s);
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.95);
  EXPECT_EQ(first_gpu(house)["every_phase"], true);
  EXPECT_EQ(first_gpu(house)["promise_from"], "DERATE_DELTA");
  house.beat(1001, 50, "delta=0 pid=17");  // another user's
  house.run(3s);
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.95);
  house.beat(1000, 17, "delta=0.02");
  house.run(3s);
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.98);
  house.beat(1000, 17, "delta=5%");
  house.beat(1000, 17, "delta=5%");
  house.run(3s);
  EXPECT_EQ(std::count_if(house.logged.begin(), house.logged.end(),
                          [](const auto& text) {
                            return text.find("process 17: DERATE_DELTA '5%'") != std::string::npos;
                          }),
            1);
}

TEST(WorkDeskAnnouncements, AnEnvironmentThatCanBeReadHolds) {
  House house(1);
  Settings settings;
  settings.policy = "assure";
  settings.govern = true;
  house.person(0, 17, 1000).asked = "0.05";
  house.start(settings);
  house.beat(1000, 17, "delta=0.2");
  house.run(3s);
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.95);
}

}  // namespace
}  // namespace derate::cli
