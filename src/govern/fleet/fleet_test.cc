#include "govern/fleet/fleet.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/test_folder.h"
#include "device/sim/sim_device.h"
#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// Simulated GPUs, each of which can be opened again.
class Gpus {
 public:
  explicit Gpus(int count, FakeClock& clock) : clock_(clock) {
    for (int i = 0; i < count; ++i)
      sims_.push_back(std::make_shared<SimGpu>(
          **find_sim_chip("v100"), SimOptions{.seed = static_cast<std::uint64_t>(i + 1)}));
  }
  OpenGpu open(int at) {
    OpenGpu out{.sim = sims_[static_cast<std::size_t>(at)]};
    auto device = std::make_unique<SimDevice>(*out.sim, clock_, at);
    devices_[at] = device.get();
    out.control = device.get();
    out.source = std::move(device);
    return out;
  }
  OpenGpus open_all() {
    OpenGpus out;
    for (int i = 0; i < static_cast<int>(sims_.size()); ++i)
      if (!missing.contains(i)) out.gpus.push_back(open(i));
    return out;
  }
  OpenFleet opener() {
    return [this](const std::string& choice) -> OpeningPoll {
      return [this, choice]() -> std::optional<Result<OpenGpus>> {
        OpenGpus all = open_all();
        if (!choice.empty())
          std::erase_if(all.gpus, [&](const OpenGpu& gpu) {
            return gpu.source->capability().id.uuid != choice;
          });
        return all;
      };
    };
  }
  SimGpu& sim(int at) { return *sims_[static_cast<std::size_t>(at)]; }
  SimFaults& faults(int at) { return devices_.at(at)->faults; }

  std::set<int> missing;

 private:
  FakeClock& clock_;
  std::vector<std::shared_ptr<SimGpu>> sims_;
  std::map<int, SimDevice*> devices_;
};

class FleetOfTwo : public testing::Test {
 protected:
  Fleet& open(const Settings& settings = {}) {
    FleetOptions options{.open = gpus.opener()};
    options.log = Log([this](const LogRecord& record) { logged += record.text + "\n"; });
    fleet.emplace(std::move(options), settings, clock);
    fleet->begin_opening();
    EXPECT_TRUE(fleet->poll_opening().ok());
    return *fleet;
  }
  void run(Duration time) {
    for (const Instant end = clock.now() + time; clock.now() < end;) {
      fleet->tick();
      fleet->maintain();
      clock.sleep_until(std::min(fleet->next_due(), end));
    }
  }
  static PolicyAssignment policy(const char* name) {
    const PolicyInfo& info = **find_policy(name);
    return {{&info, *policy_params(info, {})}, false};
  }
  Result<std::string> assign(std::size_t at, const PolicyAssignment& policy, const char* who,
                             RequestOrigin origin = origins::command,
                             std::optional<Duration> lasts = {}) {
    return fleet->assign(at, {.origin = origin,
                              .who = who,
                              .until = lasts ? std::optional(clock.now() + *lasts) : std::nullopt,
                              .policy = policy});
  }
  std::string governed(std::size_t at) const { return fleet->gpus()[at].policy_name(); }

  FakeClock clock;
  Gpus gpus{2, clock};
  std::string logged;
  std::optional<Fleet> fleet;
};

// No process could restore such a lock.
TEST_F(FleetOfTwo, AFoundLockThatTheGpuCannotHaveIsRefusedBeforeAnythingIsWritten) {
  Settings settings;
  settings.govern = true;
  settings.policy = "efficient-fix";
  settings.found_lowest_mhz = 1000;
  settings.found_highest_mhz = 1980;
  open(settings);
  EXPECT_EQ(governed(0), "");
  EXPECT_NE(fleet->gpus()[0].trouble->message.find("[found] 1000 to 1980 MHz"), std::string::npos);
  EXPECT_EQ(fleet->warnings_under(settings).size(), 2u);
  run(2s);
  EXPECT_FALSE(gpus.sim(0).locked());
}

// An upgrade does not stop governing because of a clock that drivers have always rounded.
TEST_F(FleetOfTwo, ClocksBetweenStepsAreTakenAsTheDriverWouldAndLogged) {
  Settings settings;
  settings.govern = true;
  settings.gpus = "0";
  settings.policy = "efficient-fix";
  settings.found_lowest_mhz = 1000;
  settings.found_highest_mhz = 1500;
  settings.highest_clock_mhz = 1404;
  const Folder folder;
  FleetOptions options{.journal = Journal(folder.file("journal")), .open = gpus.opener()};
  options.log = Log([this](const LogRecord& record) { logged += record.text + "\n"; });
  fleet.emplace(std::move(options), settings, clock);
  fleet->begin_opening();
  ASSERT_TRUE(fleet->poll_opening().ok());
  EXPECT_EQ(governed(0), "efficient-fix");
  for (const char* told : {"GPU 0: found.locked_lowest_mhz 1000", "is taken as 997 MHz",
                           "envelope.highest_clock_mhz 1404", "is taken as 1402 MHz"})
    EXPECT_NE(logged.find(told), std::string::npos) << told << logged;
  EXPECT_EQ(logged.find("locked_highest_mhz"), std::string::npos) << logged;  // 1500 is a step
  run(2s);
  const auto left = Journal(folder.file("journal")).read({})->entries;
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].found(kClockLock), (KnobValue{997, 1500}));
  EXPECT_TRUE(fleet->finish().ok());
}

// The settings that Derate left there would count as found.
TEST_F(FleetOfTwo, AGpuWhoseJournalCannotBeUsedIsNotGovernedUntilItIsReset) {
  const Folder folder;
  const Journal journal(folder.file("journal"));
  const std::string uuid = gpus.open(0).source->capability().id.uuid;
  std::filesystem::create_directories(journal.folder());
  std::ofstream(journal.folder() + "/" + uuid + ".json") << "half";
  Settings settings;
  settings.govern = true;
  settings.policy = "efficient-fix";
  FleetOptions options{.journal = journal, .life = {"boot", ""}, .open = gpus.opener()};
  options.log = Log([this](const LogRecord& record) { logged += record.text + "\n"; });
  fleet.emplace(std::move(options), settings, clock);
  fleet->begin_opening();
  ASSERT_TRUE(fleet->poll_opening().ok());
  EXPECT_EQ(governed(0), "");
  EXPECT_EQ(governed(1), "efficient-fix");
  EXPECT_NE(fleet->gpus()[0].trouble->message.find("derate restore --reset"), std::string::npos);
  EXPECT_FALSE(fleet->finish().ok());
  EXPECT_FALSE(gpus.sim(0).locked());
  ASSERT_TRUE(journal.settle(journal.lost({"boot", ""}).at(0)).ok());
  run(Fleet::kLeaseEvery + 1s);
  EXPECT_EQ(governed(0), "efficient-fix");
  EXPECT_TRUE(fleet->finish().ok());
}

// A fleet with leases of GPUs, which another governor may hold, and a journal.
class FleetWithLeases : public FleetOfTwo {
 protected:
  FleetWithLeases() {
    Settings settings;
    settings.govern = true;
    settings.policy = "efficient-fix";
    FleetOptions options{.journal = journal, .life = {"boot", ""}, .open = gpus.opener()};
    options.leases.take = [this](const DomainId& domain) -> Result<UniqueFd> {
      if (others.contains(domain)) return Error{Errc::busy, "another governs it"};
      return UniqueFd();
    };
    options.leases.release = [this](const DomainId& domain) { released.insert(domain); };
    options.leases.take_lost = [this] { return std::exchange(lost, {}); };
    fleet.emplace(std::move(options), settings, clock);
    fleet->begin_opening();
    EXPECT_TRUE(fleet->poll_opening().ok());
    run(2s);
    EXPECT_EQ(journalled(), 2u);
    first = fleet->gpus()[0].domain();
  }
  ~FleetWithLeases() override { fleet.reset(); }
  std::size_t journalled() const { return journal.read({"boot", ""})->entries.size(); }

  const Folder folder;
  const Journal journal{folder.file("journal")};
  std::set<DomainId> others, released;
  std::vector<DomainId> lost;
  DomainId first;
};

TEST_F(FleetWithLeases, AGpuWhoseLeaseSomebodyElseHasIsLeftToThatOne) {
  others = {first};
  lost = {first};
  run(1s);
  EXPECT_EQ(governed(0), "");
  EXPECT_FALSE(gpus.sim(0).locked());
  EXPECT_EQ(journalled(), 1u);
  EXPECT_TRUE(released.contains(first));
  EXPECT_EQ(governed(1), "efficient-fix");
  others.clear();
  run(Fleet::kLeaseEvery + 1s);
  EXPECT_EQ(governed(0), "efficient-fix");
}

TEST_F(FleetWithLeases, OneIsKeptWhileItsJournalCannotBeRemoved) {
  std::filesystem::rename(journal.folder(), folder.file("elsewhere"));
  std::ofstream(journal.folder()) << "";
  EXPECT_FALSE(fleet->release(0, "somebody").ok());
  run(1s);
  EXPECT_FALSE(gpus.sim(0).locked());
  EXPECT_FALSE(released.contains(first));
  std::filesystem::remove(journal.folder());
  std::filesystem::rename(folder.file("elsewhere"), journal.folder());
  run(LeftoverRestorer::kAgain + 1s);
  EXPECT_TRUE(released.contains(first));
  EXPECT_EQ(journalled(), 1u);
}

TEST_F(FleetOfTwo, TheConfigurationThenACommandThenARelease) {
  Settings settings;
  settings.govern = true;
  settings.gpus = "0";
  settings.policy = "efficient-fix";
  open(settings);
  EXPECT_EQ(governed(0), "efficient-fix");
  EXPECT_EQ(governed(1), "");
  EXPECT_EQ(*assign(1, policy("max-freq"), "root"), "GPU 1 is governed by max-freq");
  EXPECT_EQ(fleet->gpus()[1].assigned->who, "root");
  run(2s);
  EXPECT_TRUE(gpus.sim(1).locked());
  ASSERT_TRUE(fleet->release(1, "root").ok());
  EXPECT_EQ(governed(1), "");
  EXPECT_FALSE(gpus.sim(1).locked());
  // Another configuration says nothing of who was released by command.
  settings.gpus = "";
  fleet->reload(settings);
  EXPECT_EQ(governed(0), "efficient-fix");
  EXPECT_EQ(governed(1), "");
}

// As a page has it: what is tried comes to its end by itself, unless somebody says that it is good.
TEST_F(FleetOfTwo, WhatIsNotConfirmedInTimeEnds) {
  Settings settings;
  settings.govern = true;
  settings.policy = "efficient-fix";
  open(settings);
  const auto try_it = [&](std::size_t at) {
    return assign(at, policy("max-freq"), "ann", origins::unconfirmed, 30s);
  };
  ASSERT_TRUE(try_it(0).ok());
  ASSERT_TRUE(try_it(1).ok());
  run(29s);
  EXPECT_EQ(governed(0), "max-freq");
  EXPECT_EQ(*fleet->confirm(1, "ben"), "GPU 1 stays governed by max-freq");
  run(2s);
  EXPECT_EQ(governed(0), "efficient-fix");
  EXPECT_EQ(governed(1), "max-freq");
  EXPECT_EQ(fleet->gpus()[1].assigned->origin, origins::command);
  EXPECT_EQ(fleet->gpus()[1].assigned->who, "ben");
  for (const std::size_t at : {0, 1})
    EXPECT_EQ(fleet->confirm(at, "ben").error().code, Errc::not_found) << at;
  EXPECT_TRUE(gpus.sim(0).locked() && gpus.sim(1).locked());
}

TEST_F(FleetOfTwo, WhatIsRevertedEndsAtOnce) {
  Settings settings;
  settings.govern = true;
  settings.gpus = "0";
  settings.policy = "efficient-fix";
  open(settings);
  for (const std::size_t at : {0, 1})
    ASSERT_TRUE(assign(at, policy("max-freq"), "ann", origins::unconfirmed, 30s).ok());
  run(2s);
  EXPECT_EQ(*fleet->revert(0), "GPU 0 is again governed by efficient-fix");
  EXPECT_EQ(*fleet->revert(1), "GPU 1 is observed");
  EXPECT_FALSE(gpus.sim(1).locked());
  EXPECT_EQ(fleet->revert(1).error().code, Errc::not_found);
}

// What is the same goes on without a break, and is then the one that was there before.
TEST_F(FleetOfTwo, WhatIsTriedAndIsTheSameEnds) {
  Settings settings;
  settings.govern = true;
  settings.policy = "efficient-fix";
  open(settings);
  run(2s);
  ASSERT_TRUE(assign(0, policy("efficient-fix"), "ann", origins::unconfirmed, 10s).ok());
  run(9s);
  EXPECT_EQ(fleet->gpus()[0].assigned->origin, origins::unconfirmed);
  run(2s);
  EXPECT_EQ(governed(0), "efficient-fix");
  EXPECT_EQ(fleet->gpus()[0].assigned->origin, origins::configuration);
  EXPECT_EQ(fleet->unconfirmed(0), nullptr);
}

TEST_F(FleetOfTwo, ACommandThatFailsLeavesWhatIsTried) {
  open();
  ASSERT_TRUE(assign(0, policy("efficient-fix"), "ann", origins::unconfirmed, 30s).ok());
  PolicyAssignment bad = policy("utiliz-scale");
  bad.policy.params.set("interval", {1e-3});  // shorter than two of its ticks
  ASSERT_FALSE(assign(0, bad, "ben").ok());
  EXPECT_EQ(governed(0), "efficient-fix");
  ASSERT_NE(fleet->unconfirmed(0), nullptr);
  run(31s);
  EXPECT_EQ(governed(0), "");
}

// Its end might come before the run's: nobody would have seen it.
TEST_F(FleetOfTwo, NothingIsTriedWhileARunGoverns) {
  open();
  ASSERT_TRUE(assign(0, policy("max-freq"), "run 1", origins::run).ok());
  const auto tried = assign(0, policy("efficient-fix"), "ann", origins::unconfirmed, 30s);
  EXPECT_EQ(tried.error().code, Errc::busy);
  EXPECT_EQ(governed(0), "max-freq");
  EXPECT_EQ(fleet->unconfirmed(0), nullptr);
}

// It may be longer than what is tried, and then there is nothing to come back to but the run.
TEST_F(FleetOfTwo, WhatIsTriedEndsUnderARun) {
  open();
  ASSERT_TRUE(assign(0, policy("efficient-fix"), "ann", origins::unconfirmed, 30s).ok());
  ASSERT_TRUE(assign(0, policy("max-freq"), "run 1", origins::run).ok());
  EXPECT_EQ(*fleet->confirm(0, "ann"),
            "GPU 0 will be governed by efficient-fix when the run of run 1 has ended");
  EXPECT_EQ(governed(0), "max-freq");
  ASSERT_TRUE(fleet->end_request(fleet->gpus()[0].uuid(), origins::run, "run 1", "over").ok());
  EXPECT_EQ(governed(0), "efficient-fix");
}

TEST_F(FleetOfTwo, WhatIsTriedOutlivesAPauseAndAReload) {
  Settings settings;
  open(settings);
  ASSERT_TRUE(assign(0, policy("efficient-fix"), "ann", origins::unconfirmed, 30s).ok());
  run(2s);
  settings.govern = true;
  settings.policy = "max-freq";
  fleet->reload(settings);
  EXPECT_EQ(governed(0), "efficient-fix");
  ASSERT_TRUE(fleet->restore("paused").ok());
  fleet->close();
  fleet->begin_opening();
  ASSERT_TRUE(fleet->poll_opening().ok());
  EXPECT_EQ(governed(0), "efficient-fix");
  run(29s);
  EXPECT_EQ(governed(0), "max-freq");
}

TEST_F(FleetOfTwo, ACommandOrAReleaseTakesThePlaceOfWhatWasTried) {
  open();
  for (const std::size_t at : {0, 1})
    ASSERT_TRUE(assign(at, policy("max-freq"), "ann", origins::unconfirmed, 30s).ok());
  ASSERT_TRUE(assign(0, policy("efficient-fix"), "ann").ok());
  ASSERT_TRUE(fleet->release(1, "ann").ok());
  for (int i = 0; i < 2; ++i, run(31s)) {
    EXPECT_EQ(governed(0), "efficient-fix");
    EXPECT_EQ(governed(1), "");
  }
}

TEST_F(FleetOfTwo, AUuidThatIsNotHereKeepsNoOther) {
  gpus.missing = {1};
  Settings settings;
  settings.govern = true;
  settings.gpus = "GPU-gone," + sim_capability(gpus.sim(0).chip(), 0).id.uuid;
  open(settings);
  EXPECT_NE(logged.find("GPU 'GPU-gone' is not here"), std::string::npos);
  EXPECT_EQ(governed(0), "assure");
}

// A number that is not here may mean that the others mean other GPUs than before: none of them is
// governed until all are here, and each GPU says so.
TEST_F(FleetOfTwo, AGpuThatComesLateIsGovernedWithTheOthers) {
  gpus.missing = {1};
  Settings settings;
  settings.govern = true;
  settings.gpus = "0,1";
  open(settings);
  EXPECT_NE(logged.find("no GPU that is named by a number is governed by it"), std::string::npos);
  EXPECT_EQ(governed(0), "");
  ASSERT_TRUE(fleet->gpus()[0].trouble);
  EXPECT_NE(fleet->gpus()[0].trouble->message.find("GPU '1' is not here"), std::string::npos);
  gpus.missing.clear();
  OpenGpus late;
  late.gpus.push_back(gpus.open(1));
  fleet->add(std::move(late));
  EXPECT_EQ(governed(0), "assure");
  EXPECT_EQ(governed(1), "assure");
}

// A list of GPUs that `config check` accepts is governed.
TEST_F(FleetOfTwo, AListOfGpusIsReadAsEverywhere) {
  for (const char* list : {"0, 1", "0-1", "0,1,", "all", ""}) {
    Settings settings;
    settings.govern = true;
    settings.gpus = list;
    open(settings);
    EXPECT_EQ(governed(0), "assure") << list;
    EXPECT_EQ(governed(1), "assure") << list;
    EXPECT_EQ(fleet->governs_nothing(), "") << list;
  }
}

TEST_F(FleetOfTwo, AConfigurationThatGovernsNothingSaysSo) {
  Settings settings;
  settings.govern = true;
  settings.gpus = "GPU-gone";
  open(settings);
  EXPECT_EQ(
      fleet->governs_nothing().find("the configuration says govern, and no GPU is governed: "), 0u);
  EXPECT_NE(fleet->governs_nothing().find("GPU 'GPU-gone' is not here"), std::string::npos);
  // An operator's later assignment counts as governing.
  ASSERT_TRUE(assign(1, policy("efficient-fix"), "ann").ok());
  EXPECT_EQ(fleet->governs_nothing(), "");
  settings.govern = false;
  open(settings);
  EXPECT_EQ(fleet->governs_nothing(), "");
}

TEST_F(FleetOfTwo, AGpuThatWasLostIsOpenedAnewAndGovernedAsBefore) {
  open();
  ASSERT_TRUE(assign(0, policy("efficient-fix"), "root").ok());
  run(2s);
  const std::uint64_t opening = fleet->gpus()[0].opening;
  gpus.faults(0).gpu_lost = true;
  run(30s);
  EXPECT_NE(logged.find("GPU 0 is back"), std::string::npos);
  EXPECT_NE(fleet->gpus()[0].opening, opening);
  EXPECT_EQ(governed(0), "efficient-fix");
}

// Without a guard, no other process restores after this one.
TEST_F(FleetOfTwo, AGpuThatDoesNotAnswerIsTriedAgainForAsLongAsTheCallerHasPatience) {
  const Folder folder;
  const Instant back = clock.now() + 12s;  // time at which the driver answers again
  FleetOptions options{.journal = Journal(folder.file("journal")), .open = gpus.opener()};
  options.alive = [&] {
    if (clock.now() >= back) gpus.faults(0).gpu_lost = false;
  };
  fleet.emplace(std::move(options), Settings{}, clock);
  fleet->begin_opening();
  ASSERT_TRUE(fleet->poll_opening().ok());
  for (const std::size_t at : {0, 1}) ASSERT_TRUE(assign(at, policy("efficient-fix"), "root").ok());
  run(2s);
  ASSERT_TRUE(gpus.sim(0).locked());
  gpus.faults(0).gpu_lost = true;
  EXPECT_FALSE(fleet->restore("the guard is gone", 5s).ok());
  EXPECT_TRUE(gpus.sim(0).locked());
  EXPECT_FALSE(gpus.sim(1).locked());
  EXPECT_TRUE(fleet->restore("the guard is gone", 10s).ok());
  EXPECT_FALSE(gpus.sim(0).locked());
  EXPECT_LE(clock.now() - back, Fleet::kRestoreAgain);
}

// A new sink is a function: here one that counts what each GPU was told to do.
TEST_F(FleetOfTwo, ANewSinkSeesEachRecordWithItsGpuAndTheOneBefore) {
  open();
  ASSERT_TRUE(assign(1, policy("efficient-fix"), "root").ok());
  std::map<std::string, int> records;
  bool in_order = true;
  fleet->add_sink([&](const GpuRecord& each) {
    ++records[each.gpu.policy_name()];
    in_order = in_order && (!each.before || each.before->time <= each.record.time);
  });
  run(10s);
  EXPECT_GE(records[""], 9);
  EXPECT_GE(records["efficient-fix"], 9);
  EXPECT_TRUE(in_order);
}

// All bounds hold, whatever governs; when they have ended the policy has its envelope again.
TEST_F(FleetOfTwo, TheLowestBoundCounts) {
  open();
  for (const std::size_t at : {0u, 1u}) ASSERT_TRUE(assign(at, policy("max-freq"), "root").ok());
  run(3s);
  const std::string& gpu = fleet->gpus()[0].uuid();
  fleet->bounds().put(gpu, {.source = "budget", .who = "rack 3", .most = 1300});
  fleet->bounds().put(
      gpu, {.source = "annotation", .who = "job 17", .most = 1000, .until = clock.now() + 10s});
  run(5s);
  const auto locked = [&](std::size_t at) { return fleet->gpus()[at].last->actuation.locked; };
  EXPECT_LE(*locked(0), Megahertz(1000));
  EXPECT_GT(*locked(0), Megahertz(980));
  EXPECT_EQ(fleet->gpus()[0].last->bounded_above->who, "job 17");
  EXPECT_EQ(*locked(1), gpus.sim(1).chip().sm_clocks.back());
  run(10s);
  EXPECT_LE(*locked(0), Megahertz(1300));
  EXPECT_GT(*locked(0), Megahertz(1280));
  fleet->bounds().withdraw(gpu, "budget");
  run(5s);
  EXPECT_EQ(*locked(0), gpus.sim(0).chip().sm_clocks.back());
  EXPECT_FALSE(fleet->gpus()[0].last->bounded_above);
}

TEST_F(FleetOfTwo, NothingIsLeftSetWhenItIsClosed) {
  open();
  for (const std::size_t at : {0u, 1u})
    ASSERT_TRUE(assign(at, policy("efficient-fix"), "root").ok());
  run(2s);
  EXPECT_TRUE(gpus.sim(0).locked());
  ASSERT_TRUE(fleet->restore("paused").ok());
  fleet->close();
  EXPECT_FALSE(gpus.sim(0).locked());
  EXPECT_FALSE(fleet->is_open());
  // What was commanded holds when they are opened again.
  fleet->begin_opening();
  ASSERT_TRUE(fleet->poll_opening().ok());
  EXPECT_EQ(governed(0), "efficient-fix");
}

}  // namespace
}  // namespace derate
