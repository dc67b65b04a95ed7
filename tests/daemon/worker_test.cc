#include "apps/derated/worker.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "attrib/split.h"
#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "house.h"
#include "policy/registry/registry.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;
Settings governing(const char* policy = "efficient-fix") {
  Settings settings;
  settings.policy = policy;
  settings.govern = true;
  return settings;
}

// The worker's main tests are run with sources that answer at once and with those that answer
// rounds later, as a real driver's thread does.
class LateWorker : public testing::TestWithParam<int> {
 protected:
  // Until processes were listed anew and published: a list waits for one before and for a survey.
  Duration listed() const { return 3s + 4 * GetParam() * 200ms; }
};
INSTANTIATE_TEST_SUITE_P(Rounds, LateWorker, testing::Values(0, 1, 3, 12));

struct LateHouse : House {
  LateHouse(int gpus, int rounds_later) : House(gpus) {
    answer_later(rounds_later);
    attribution.where = BackgroundWorker::Where::at_once;
    attribution.name = [](const GpuId&, const Tenancy&, const SaidJobs&) { return TenantNames(); };
  }
};

Json answer(House& house, const Json& request) { return parse_json(house.ask(json_text(request))); }

// An attacker who takes over derate-agent has its role's rights on the API's socket, and no others.
TEST(Worker, TheAgentsUserHasNoSayOnOtherSockets) {
  constexpr uid_t kAgent = 65534, kClient = 1000;
  House house(1);
  house.work(0, "GeMM");
  Settings settings;
  settings.api_agent = std::to_string(kAgent);
  house.start(settings);
  const std::string request = R"({"command": "tune-job-list"})";
  const auto answer_to = [&](uid_t uid) {
    return parse_json(house.worker->clients().handle(request, {7, uid, 1}).value_or("{}"));
  };
  EXPECT_EQ(answer_to(kClient)["ok"], true);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(answer_to(kAgent)["ok"], false);
    house.beat(kAgent, 7, "done=1");
  }
  house.run(2s);
  const std::string audit = *read_file(house.audit_file());
  for (const char* const door : {"client.sock", "beat.sock"}) {
    const auto at = audit.find(std::string(door) + ", uid 65534: ");
    ASSERT_NE(at, std::string::npos) << audit;
    EXPECT_EQ(audit.find(door, at + 1), std::string::npos) << audit;
    EXPECT_NE(audit.find("100 times", at), std::string::npos) << audit;
  }
}

TEST(Worker, ObservesUntilItIsTold) {
  House house(2);
  house.work(0, "GeMM");
  house.start();
  house.run(10s);
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.left().empty());
  // Nobody is kept from governing.
  EXPECT_TRUE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
  const auto state = parse_json(*read_file(house.folder + "/run/state.json"));
  EXPECT_EQ(state["gpus"].size(), 2u);
  EXPECT_FALSE(state["gpus"][0].contains("policy"));
  EXPECT_NE(state["gpus"][0]["reason"], "");
}

TEST(Worker, GovernsByConfigurationAndGivesBack) {
  House house(2);
  Settings settings = governing();
  settings.gpus = "1";
  house.start(settings);
  house.run(1s);
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.sim(1).locked());
  ASSERT_EQ(house.left().size(), 1u);
  EXPECT_EQ(house.left()[0].domain.name, House::uuid(1));
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_FALSE(house.sim(1).locked());
  EXPECT_TRUE(house.left().empty());
  EXPECT_NE(read_file(house.audit_file())->find("\"what\":\"restore\""), std::string::npos);
}

TEST_P(LateWorker, TakesAndReturnsGpusOnCommand) {
  LateHouse house(2, GetParam());
  house.start();
  const Json set =
      answer(house, {{"command", "policy-set"}, {"policy", "efficient-fix"}, {"gpus", "0"}});
  EXPECT_EQ(set["ok"], true) << set;
  house.run(1s);
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_FALSE(house.sim(1).locked());
  EXPECT_FALSE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
  EXPECT_EQ(answer(house, {{"command", "release"}, {"gpus", ""}})["ok"], true);
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
}

TEST(Worker, RefusesWhatItCannotDoAndSaysWhy) {
  House house(1);
  house.start();
  const auto refused = [&](const Json& request) {
    const Json said = answer(house, request);
    EXPECT_EQ(said["ok"], false) << request;
    return said["error"].get<std::string>();
  };
  EXPECT_NE(refused({{"command", "dance"}}).find("dance"), std::string::npos);
  EXPECT_NE(refused({{"command", "policy-set"}, {"policy", "turbo"}}).find("no policy 'turbo'"),
            std::string::npos);
  EXPECT_NE(refused({{"command", "policy-set"}, {"policy", "geepafs"}, {"set", {"delta=9"}}})
                .find("delta '9'"),
            std::string::npos);
  EXPECT_NE(refused({{"command", "release"}, {"gpus", "7"}}).find("7"), std::string::npos);
  EXPECT_NE(refused(Json::array()).find("JSON object"), std::string::npos);
  // A field that is not understood never means all GPUs.
  EXPECT_EQ(refused({{"command", "release"}, {"gpus", 0}}), "release: gpus 0: wanted a text");
  EXPECT_EQ(refused({{"command", "policy-set"}, {"dry_run", "yes"}}),
            "policy-set: dry_run \"yes\": wanted true or false");
  EXPECT_NE(refused({{"command", "policy-set"}, {"set", "delta=0.1"}}).find("wanted a list"),
            std::string::npos);
  EXPECT_NE(refused({{"command", "release"}, {"gpu", "0"}}).find("unknown field 'gpu'"),
            std::string::npos);
  for (const char* rubbish : {"", "{", "nonsense", "{\"command\":7}", "[[[[["})
    EXPECT_EQ(parse_json(house.ask(rubbish))["ok"], false);
  EXPECT_FALSE(house.sim(0).locked());
}

// One GPU that fails keeps no other from what was asked, and nothing that was done is lost.
TEST(Worker, APartialFailureIsToldForEachGpuAndKept) {
  House house(3);
  auto other = take_lease(house.folder + "/run", House::uuid(1), "derate run, pid 9");
  ASSERT_TRUE(other.ok());
  house.start();
  const Json set = answer(house, {{"command", "policy-set"}, {"policy", "efficient-fix"}});
  EXPECT_EQ(set["ok"], false);
  EXPECT_EQ(set["exit_code"], 5);
  EXPECT_EQ(set["message"],
            "GPU 0 is governed by efficient-fix, GPU 2 is governed by efficient-fix");
  EXPECT_TRUE(set["error"].get<std::string>().starts_with("GPU 1: not governed: ")) << set;
  ASSERT_EQ(set["gpus"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const Json& gpu = set["gpus"][static_cast<std::size_t>(i)];
    EXPECT_EQ(gpu["index"], i);
    EXPECT_EQ(gpu["uuid"], House::uuid(i));
    EXPECT_EQ(gpu["ok"], i != 1);
    EXPECT_EQ(gpu.contains("message"), i != 1);
    EXPECT_EQ(gpu.value("exit_code", 0), i == 1 ? 75 : 0);
  }
  house.run(1s);
  // Not for a moment: what was told holds over a reload of the same and of another file.
  Settings another;
  another.max_delta = 0.1;
  another.on_drift = "yield";
  for (const Settings& file : {Settings{}, another}) {
    house.worker->reload(file);
    house.run(1s);
    EXPECT_TRUE(house.sim(0).locked());
    EXPECT_FALSE(house.sim(1).locked());
    EXPECT_TRUE(house.sim(2).locked());
  }
  // The one that failed is as before: it is not taken when the other lets go.
  *other = UniqueFd();
  house.run(Fleet::kLeaseEvery + 1s);
  EXPECT_FALSE(house.sim(1).locked());
}

// A restore between two policies that fails leaves the new one in charge, and is not called its
// failure: the GPU is governed by it after a reload, too, and restored in the end.
TEST(Worker, APolicyThatFollowsOneThatIsNotGivenBackStays) {
  House house(2);
  house.start();
  answer(house, {{"command", "policy-set"}, {"policy", "max-freq"}});
  house.run(1s);
  ASSERT_TRUE(house.sim(0).locked());
  house.trouble(0).faults.no_permission = true;
  const Json set = answer(house, {{"command", "policy-set"}, {"policy", "efficient-fix"}});
  EXPECT_EQ(set["ok"], true) << set;
  EXPECT_NE(set["gpus"][0]["message"].get<std::string>().find("not yet given back from before: "),
            std::string::npos)
      << set;
  EXPECT_EQ(set["gpus"][1]["message"], "GPU 1 is governed by efficient-fix");
  Settings another;
  another.on_drift = "yield";
  house.worker->reload(another);
  house.trouble(0).faults.no_permission = false;
  house.run(2min);
  EXPECT_EQ(first_gpu(house)["policy"], "efficient-fix");
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.left().empty());
}

TEST(Worker, AReleaseTellsOfEachGpu) {
  House house(2);
  house.start(governing());
  house.run(1s);
  house.trouble(0).faults.no_permission = true;
  Json said = answer(house, {{"command", "release"}});
  EXPECT_EQ(said["exit_code"], 5) << said;
  EXPECT_EQ(said["message"], "GPU 1 is observed");
  EXPECT_TRUE(said["gpus"][0]["error"].get<std::string>().starts_with("GPU 0: not restored: "));
  EXPECT_EQ(said["gpus"][0]["exit_code"], 4);
  house.trouble(0).faults.no_permission = false;
  house.run(LeftoverRestorer::kAgain + 1s);
  EXPECT_FALSE(house.sim(0).locked());  // tried again, as told
  said = answer(house, {{"command", "release"}});
  EXPECT_EQ(said["ok"], true) << said;
  EXPECT_EQ(said["gpus"].size(), 2u);
}

TEST(Worker, AGpuThatAnotherGovernsIsObservedAndTakenLater) {
  House house(1);
  auto other = take_lease(house.folder + "/run", House::uuid(0), "derate run, pid 9");
  ASSERT_TRUE(other.ok());
  house.start(governing());
  house.run(1s);
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.has_logged("governed by derate run, pid 9"));
  *other = UniqueFd();
  house.run(Fleet::kLeaseEvery + 1s);
  EXPECT_TRUE(house.sim(0).locked());
}

TEST_P(LateWorker, APauseClosesEverythingAndAResumeGoesOn) {
  LateHouse house(2, GetParam());
  house.start();
  answer(house, {{"command", "policy-set"}, {"policy", "efficient-fix"}, {"gpus", "1"}});
  house.run(1s);
  EXPECT_EQ(answer(house, {{"command", "pause"}})["ok"], true);
  EXPECT_EQ(house.trouble(0).open + house.trouble(1).open, 0);
  EXPECT_FALSE(house.sim(1).locked());
  EXPECT_EQ(parse_json(*read_file(house.folder + "/run/state.json"))["paused"], true);
  house.run(1min);
  EXPECT_EQ(house.trouble(0).open, 0);
  // Nobody else comes in between.
  EXPECT_FALSE(take_lease(house.folder + "/run", House::uuid(1), "another").ok());
  EXPECT_EQ(answer(house, {{"command", "policy-set"}, {"policy", "max-freq"}})["ok"], false);
  EXPECT_EQ(answer(house, {{"command", "resume"}})["ok"], true);
  house.run(4s);
  EXPECT_TRUE(house.sim(1).locked());
  EXPECT_FALSE(house.sim(0).locked());
}

TEST_P(LateWorker, AGpuThatWasLostIsOpenedAnewAndStillRestored) {
  LateHouse house(2, GetParam());
  house.start(governing());
  house.run(1s);
  house.trouble(0).faults.gpu_lost = true;
  house.run(20s);
  EXPECT_TRUE(house.sim(1).locked());
  EXPECT_EQ(house.left().size(), 2u);
  house.sim(0).unlock();  // a reset took the lock with it
  house.trouble(0).faults.gpu_lost = false;
  house.run(20s);
  EXPECT_TRUE(house.has_logged("GPU 0 is back"));
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_EQ(house.trouble(0).open, 1);
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.left().empty());
}

// Models that were learned without an offset hold no more with one.
TEST_P(LateWorker, AGpuWhoseSettingsAnotherToolChangesIsOpenedAnewOnce) {
  LateHouse house(2, GetParam());
  house.trouble(0).modes = SharedModes(GpuModes{.sm_clock_offset = 0});
  house.start(governing());
  house.run(5s);
  EXPECT_EQ(house.trouble(0).opened, 1);
  house.trouble(0).modes = SharedModes(GpuModes{.sm_clock_offset = 150});
  house.run(20s);
  EXPECT_EQ(house.trouble(0).opened, 2);
  EXPECT_EQ(house.trouble(0).open, 1);
  EXPECT_EQ(house.trouble(1).opened, 1);
  EXPECT_TRUE(house.has_logged("GPU 0: another tool changed its settings: opened anew"));
  EXPECT_FALSE(house.has_logged("GPU 0 is back"));
  EXPECT_TRUE(house.sim(0).locked());
  const Json gpu = parse_json(*read_file(house.folder + "/run/state.json"))["gpus"][0];
  EXPECT_EQ(gpu["other_settings"], "the SM clock has an offset of +150 MHz");
  EXPECT_EQ(gpu["other_settings_changed"], true);
  // A hint to an unlocked GPU changes nothing of a locked one.
  house.trouble(0).modes =
      SharedModes(GpuModes{.sm_clock_offset = 150, .power_mizer = PowerMizer::maximum_performance});
  house.run(20s);
  EXPECT_EQ(house.trouble(0).opened, 2);
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_TRUE(house.left().empty());
}

// One that could not be opened at the start is looked for, and governed when it is there.
TEST_P(LateWorker, AGpuThatIsMissingAtTheStartIsFoundLater) {
  LateHouse house(2, GetParam());
  house.trouble(1).faults.gpu_lost = true;
  house.start(governing());
  house.run(FleetOpener::kRescanEvery + 10s);
  EXPECT_FALSE(house.has_logged("GPU 1 is here now"));
  house.trouble(1).faults.gpu_lost = false;
  house.run(2 * FleetOpener::kRescanEvery);
  EXPECT_TRUE(house.has_logged("GPU 1 is here now"));
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_TRUE(house.sim(1).locked());
  EXPECT_EQ(house.trouble(0).open, 1);  // the rescan's own handle is closed again
  EXPECT_EQ(house.trouble(1).open, 1);
}

// The GPU is marked, the other goes on, and what was written is restored in the end.
TEST_P(LateWorker, AGpuThatHangsDoesNotHoldTheOther) {
  LateHouse house(2, GetParam());
  house.start(governing());
  house.run(2s);
  house.trouble(0).hangs = true;
  house.run(2s);
  const Json state = parse_json(*read_file(house.folder + "/run/state.json"));
  EXPECT_NE(state["gpus"][0]["error"].get<std::string>().find("has not come back"),
            std::string::npos);
  EXPECT_FALSE(state["gpus"][1].contains("error")) << state["gpus"][1];
  EXPECT_TRUE(house.sim(1).locked());
  house.run(30s);
  house.trouble(0).hangs = false;
  house.run(20s);
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_FALSE(house.sim(1).locked());
  EXPECT_TRUE(house.left().empty());
}

TEST(Worker, ALeftoverIsRestoredBeforeAnythingElse) {
  House house(2);
  JournalEntry entry;
  entry.domain = gpu_domain(House::uuid(0));
  entry.life = house.life;
  entry.owner = "derated";
  entry.pid = 7;
  entry.knobs = {{kClockLock, {{}, true}}, {kPowerLimit, {one_value(250), true}}};
  ASSERT_TRUE(house.journal().write(entry).ok());
  entry.domain = gpu_domain("GPU-gone");
  ASSERT_TRUE(house.journal().write(entry).ok());
  house.sim(0).lock(135_MHz, 135_MHz);
  house.start();
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_EQ(house.sim(0).power_limit(), 250_W);
  ASSERT_EQ(house.left().size(), 1u);
  EXPECT_EQ(house.left()[0].domain.name, "GPU-gone");
  EXPECT_TRUE(house.has_logged("GPU-gone: a journal is left of a GPU that is not here"));
}

// A container's /proc may show its own processes another boot than the service sees: whoever
// governs the GPU knows what its journal is good for.
TEST(Worker, AJournalOfAnotherBootIsLeftWhileSomebodyGoverns) {
  House house(1);
  JournalEntry entry;
  entry.domain = gpu_domain(House::uuid(0));
  entry.life = {"another boot", "load"};
  entry.owner = "derated";
  entry.pid = 7;
  entry.knobs[kClockLock].written = true;
  ASSERT_TRUE(house.journal().write(entry).ok());
  {
    const auto lease = take_lease(house.folder + "/run", House::uuid(0), "derated, pid 7");
    ASSERT_TRUE(lease.ok());
    house.start();
    EXPECT_TRUE(house.has_logged("left alone, since"));
    EXPECT_EQ(house.journal().read(entry.life)->entries.size(), 1u);
  }
  house.start();
  EXPECT_TRUE(house.has_logged("set aside, not applied"));
  EXPECT_TRUE(house.journal().read(entry.life)->entries.empty());
}

// Under the power limit the clock would be where it is at the highest lock, too.
TEST(Worker, WhatThePowerLimitHoldsDownSavesNothing) {
  House house(1, "H200");
  house.work(0, "gemm_bf16");
  house.start(governing("assure"));
  house.run(90s);
  const Json gpu = first_gpu(house);
  ASSERT_EQ(gpu["policy"], "assure") << gpu;
  EXPECT_NEAR(gpu["saving"]["energy_saving_ratio"].get<double>(), 0, 0.01) << gpu;
}

// What could not be restored at the start is still what the GPU is restored to in the end.
TEST_P(LateWorker, ALeftoverThatCannotBeRestoredIsHandedOn) {
  LateHouse house(1, GetParam());
  JournalEntry entry;
  entry.domain = gpu_domain(House::uuid(0));
  entry.life = house.life;
  entry.owner = "derated";
  entry.knobs[kPowerLimit] = {one_value(250), true};
  ASSERT_TRUE(house.journal().write(entry).ok());
  house.trouble(0).faults.no_permission = true;
  house.start(governing());
  house.run(1s);
  EXPECT_EQ(house.left().size(), 1u);
  house.trouble(0).faults.no_permission = false;
  house.run(2min);
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 250_W);
  EXPECT_TRUE(house.left().empty());
}

TEST_P(LateWorker, AReloadChangesWhatTheFileSaysAndNothingElse) {
  LateHouse house(2, GetParam());
  house.start(governing("max-freq"));
  answer(house, {{"command", "policy-set"}, {"policy", "efficient-fix"}, {"gpus", "1"}});
  house.run(1s);
  house.worker->reload(governing("max-freq"));
  house.run(1s);
  Settings off = governing("max-freq");
  off.govern = false;
  house.worker->reload(off);
  house.run(1s);
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.sim(1).locked());  // by command: the file does not take it
  answer(house, {{"command", "release"}, {"gpus", "1"}});
  Settings rules = governing("max-freq");
  rules.idle.after_s = 7;
  house.worker->reload(rules);
  house.run(1s);
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_FALSE(house.sim(1).locked());  // nor does it take back what was released
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_FALSE(house.sim(0).locked());
}

// --- journals that another process keeps from us -------------------------------------------------

JournalEntry left_by(House& house, const char* owner) {
  JournalEntry entry;
  entry.domain = gpu_domain(House::uuid(0));
  entry.life = house.life;
  entry.owner = owner;
  entry.pid = 7;
  entry.knobs[kPowerLimit] = {one_value(250), true};
  EXPECT_TRUE(house.journal().write(entry).ok());
  house.sim(0).set_power_limit(200_W);
  return entry;
}

// Its holder is not named, or is gone and has left it to somebody.
UniqueFd held_by_nobody_known(House& house) {
  auto lease = take_lease(house.folder + "/run", House::uuid(0), "derated, pid 9");
  EXPECT_TRUE(lease.ok());
  const std::string_view text = "derated, pid 9\n1999999 1\n";
  EXPECT_EQ(::ftruncate(lease->get(), 0), 0);
  EXPECT_GT(::pwrite(lease->get(), text.data(), text.size(), 0), 0);
  return *std::move(lease);
}

std::string trouble_of(House& house) {
  const auto state = parse_json(*read_file(house.folder + "/run/state.json"));
  return state["gpus"][0].value("trouble", "");
}

TEST(WorkerLeftovers, AreRestoredOnceTheLeaseIsFree) {
  House house(1);
  left_by(house, "derated");
  UniqueFd other = held_by_nobody_known(house);
  house.start();
  house.run(12s);
  EXPECT_EQ(house.sim(0).power_limit(), 200_W);
  EXPECT_EQ(std::count(house.logged.begin(), house.logged.end(), house.logged.front()), 1);
  EXPECT_NE(trouble_of(house).find("is held by an unknown process"), std::string::npos);
  other = UniqueFd();
  house.run(Fleet::kLeaseEvery + 2s);
  EXPECT_EQ(house.sim(0).power_limit(), 250_W);
  EXPECT_TRUE(house.left().empty());
  EXPECT_EQ(trouble_of(house), "");
  EXPECT_TRUE(take_lease(house.folder + "/run", House::uuid(0), "another").ok());
  EXPECT_TRUE(house.worker->stop().ok());
}

// No clean end while a journal is left that nobody will restore.
TEST(WorkerLeftovers, OfNobodyAreNoCleanEnd) {
  House house(1);
  left_by(house, "derated");
  UniqueFd other = held_by_nobody_known(house);
  house.start();
  house.run(1s);
  const auto stopped = house.worker->stop();
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, Errc::busy);
  other = UniqueFd();
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 250_W);
}

TEST(WorkerLeftovers, OfAGovernorThatLivesAreItsOwn) {
  House house(1);
  left_by(house, "derate run");
  const auto other = take_lease(house.folder + "/run", House::uuid(0), "derate run, pid 9");
  house.start();
  house.run(12s);
  EXPECT_EQ(trouble_of(house), "");
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.left().size(), 1u);
}

TEST(WorkerLeftovers, ThatCannotBeRestoredAreNoCleanEnd) {
  House house(1);
  left_by(house, "derated");
  house.trouble(0).faults.no_permission = true;
  house.start();
  house.run(1s);
  EXPECT_FALSE(house.worker->stop().ok());
  house.trouble(0).faults.no_permission = false;
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 250_W);
}

TEST(WorkerLeftovers, AreRestoredThoughAnotherGpuCannotBe) {
  House house(2);
  left_by(house, "derated");
  house.trouble(0).faults.no_permission = true;
  Settings settings = governing();
  settings.gpus = "1";
  house.start(settings);
  house.run(1s);
  house.trouble(0).faults.no_permission = false;
  house.trouble(1).faults.no_permission = true;
  EXPECT_FALSE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 250_W);
  EXPECT_TRUE(house.sim(1).locked());
  ASSERT_EQ(house.left().size(), 1u);
  EXPECT_EQ(house.left()[0].domain.name, house.uuid_of(1));
  house.trouble(1).faults.no_permission = false;
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_FALSE(house.sim(1).locked());
}

// What is found on the GPU then is not what was found on it first.
TEST(WorkerLeftovers, OfAGovernorThatDiedLaterAreRestoredBeforeItIsGoverned) {
  House house(1);
  house.start();
  house.run(1s);
  left_by(house, "derate run");
  EXPECT_EQ(answer(house, {{"command", "policy-set"}, {"policy", "power-cap"}})["ok"], true);
  house.run(1s);
  EXPECT_TRUE(house.has_logged("restored what an earlier process left"));
  EXPECT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.sim(0).power_limit(), 250_W);
  EXPECT_TRUE(house.left().empty());
}

// --- settings ------------------------------------------------------------------------------------

// Each number anywhere in its range, each text one of those that are allowed.
// One of the texts that a setting may be; of a setting that is not named here the test fails.
std::string any_text(const SettingInfo& info) {
  std::map<std::string, std::vector<std::string>> allowed = {
      {"governor.gpus", {"", "0", "1,0"}},
      {"governor.on_drift", {"reassert", "yield"}},
      {"run.users", {"root", "everyone", "derate", "100"}},
      {"run.policies", {"", "assure", "assure, max-freq"}},
      {"scheduler.users", {"root", "everyone", "derate", "100"}},
      {"scheduler.accounts", {"", "physics, chemistry"}},
      {"scheduler.partitions", {"", "gpu"}},
      {"scheduler.policies", {"", "assure", "assure, max-freq"}},
      {"kubernetes.pods_socket", {"", "/run/pods/pods-api.sock"}},
      {"kubernetes.prefix", {"derate.dev", "gpu.example.org"}},
      {"kubernetes.namespaces", {"", "lab, prod"}},
      {"kubernetes.policies", {"", "assure", "assure, max-freq"}},
      {"tune.users", {"root", "everyone"}},
      {"attribute.method", {""}},
      {"attribute.idle_rule", {"unallocated", "by_slice", "equal"}},
      {"attribute.currency", {"EUR", "SEK"}},
      {"attribute.pod_resources", {"", "/var/lib/kubelet/pod-resources/kubelet.sock"}},
      {"dcgm.use", {"auto", "on", "off"}},
      {"dcgm.address", {"", "127.0.0.1:5556", "unix:/run/engine"}},
      {"api.readers", {"root", "everyone", "derate", "100"}},
      {"api.users", {"root", "everyone", "derate", "100"}},
      {"api.operators", {"root", "everyone", "derate", "100"}},
      {"api.admins", {"root", "derate", "100"}},
      {"api.agent", {"", "derate-agent", "65534"}}};
  for (const PolicyInfo& policy : policies()) allowed["governor.policy"].push_back(policy.name);
  for (const SplitMethodInfo& method : split_methods())
    allowed["attribute.method"].push_back(method.name);
  const auto& texts = allowed[std::string(info.section) + "." + info.key];
  RC_ASSERT(!texts.empty());
  return *rc::gen::elementOf(texts);
}

double any_number(const SettingInfo& info) {
  const int part =
      *rc::gen::weightedElement<int>({{1, 0}, {1, 1000}, {3, *rc::gen::inRange(0, 1001)}});
  return info.lowest + (info.highest - info.lowest) * part / 1000;
}

void any_value(const SettingInfo& info, std::string& value) { value = any_text(info); }
void any_value(const SettingInfo&, bool& value) { value = *rc::gen::arbitrary<bool>(); }
void any_value(const SettingInfo& info, int& value) { value = static_cast<int>(any_number(info)); }
void any_value(const SettingInfo& info, double& value) { value = any_number(info); }
void any_value(const SettingInfo& info, std::optional<double>& value) {
  if (*rc::gen::arbitrary<bool>()) value = any_number(info);
}

// The first not above the second.
void in_order(std::optional<double>& first, std::optional<double>& second) {
  if (first && second && *first > *second) std::swap(first, second);
}

JobSetting any_job(const Settings& settings) {
  JobSetting out{.name = "job", .where = ""};
  out.user = *rc::gen::element<std::string>("", "0", "1000", "no-such-user");
  out.process = *rc::gen::element<std::string>("", "train", "t*[!x]");
  out.job_class = *rc::gen::element<std::string>("training", "inference", "batch");
  // 0.0035 * 10 / 10 is a little more than 0.0035.
  if (*rc::gen::arbitrary<bool>())
    out.delta = std::min(settings.max_delta, settings.max_delta * *rc::gen::inRange(0, 11) / 10);
  return out;
}

ServiceSetting any_service() {
  ServiceSetting out{.name = "chat", .metrics = "http://127.0.0.1:8000/metrics"};
  if (*rc::gen::arbitrary<bool>()) out.promise = {"itl p99 <= 50 ms"};
  out.gpus = *rc::gen::element<std::string>("", "0", "1,0", "7");
  if (out.gpus.empty()) out.process = *rc::gen::element<std::string>("train", "t*[!x]");
  return out;
}

Settings any_settings() {
  Settings out;
  visit_settings(out, [](const SettingInfo& info, auto& value) { any_value(info, value); });
  out.expire_after_s = std::max(out.expire_after_s, out.stale_after_s);
  in_order(out.lowest_clock_mhz, out.highest_clock_mhz);
  if (out.found_lowest_mhz.has_value() != out.found_highest_mhz.has_value())
    out.found_lowest_mhz = out.found_highest_mhz = std::nullopt;
  in_order(out.found_lowest_mhz, out.found_highest_mhz);
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) out.jobs.push_back(any_job(out));
  if (*rc::gen::arbitrary<bool>()) out.services.push_back(any_service());
  for (const ParamSpec& spec : (*find_policy(out.policy))->params) {
    if (std::string_view(spec.name) != "tick") continue;
    const double part = *rc::gen::inRange(1, 11) / 10.0;
    const double tick = spec.lowest + (spec.highest - spec.lowest) * part;
    out.policy_settings.push_back({out.policy, spec.name, std::to_string(tick), ""});
  }
  return out;
}

// The guard hears from the worker after each round: one each second is what it may count on.
RC_GTEST_PROP(Worker, ARoundComesEachSecondWhateverTheSettingsAre, ()) {
  const Settings settings = any_settings();
  RC_ASSERT(parse_config(print_config(settings), "generated").ok());
  LateHouse house(2, *rc::gen::element(0, 3));
  house.work(0, "GeMM");
  house.person(0, 17, 1000);
  house.start(settings);
  const Instant end = house.clock.now() + 13s;
  for (int rounds = 0; house.clock.now() < end; ++rounds) {
    const Instant before = house.clock.now();
    RC_ASSERT(house.round());
    RC_ASSERT(house.clock.now() - before <= 1s);
    RC_ASSERT(rounds < 5000);  // nor does it spin
  }
}

TEST(Worker, AReloadTakesInHowOftenAGpuIsObserved) {
  House house(2);
  int observed = 0;
  house.note = [&](const Record& record) { observed += record.gpu == 0 ? 1 : 0; };
  Settings settings = governing();
  settings.gpus = "1";
  house.start(settings);
  house.run(2s);
  const auto writes = *read_file(house.audit_file());
  settings.observer.every_s = 5;
  house.worker->reload(settings);
  observed = 0;
  house.run(50s);
  EXPECT_GE(observed, 9);
  EXPECT_LE(observed, 11);
  settings.observer.every_s = 0.5;
  house.worker->reload(settings);
  observed = 0;
  house.run(50s);
  EXPECT_GE(observed, 99);
  EXPECT_LE(observed, 101);
  EXPECT_EQ(*read_file(house.audit_file()), writes);  // nothing is governed anew for it
}

TEST(Worker, AFullDiskMeansNoWrites) {
  House house(1);
  std::filesystem::create_directories(house.folder + "/state");
  std::filesystem::create_symlink("/proc/derate", house.folder + "/state/journal");
  house.start(governing());
  house.run(5s);
  EXPECT_FALSE(house.sim(0).locked());
  const auto state = parse_json(*read_file(house.folder + "/run/state.json"));
  EXPECT_NE(state["gpus"][0]["trouble"].get<std::string>().find("no journal"), std::string::npos);
}

// A job of a while, and the idle seconds that end it.
void run_job(House& house, int gpu) {
  house.run(3s);
  house.work(gpu, "GeMM");
  house.run(60s);
  house.sim(gpu).stop();
  house.run(5s);
}

std::vector<PhaseModel> models_in(const House& house, const std::string& file) {
  auto found = SqliteModelCache(file, house.clock).all();
  return found.ok() ? *std::move(found) : std::vector<PhaseModel>();
}

// One of two GPUs learns, the other knows; a worker that comes later, too. What simulated GPUs
// show never gets into the file of real ones.
TEST(Worker, ModelsOutliveItAndAreShared) {
  House house(2);
  house.start(governing("assure"));
  run_job(house, 0);
  auto models = models_in(house, house.models().simulated);
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].chip, "V100-SXM2");
  EXPECT_EQ(models[0].highest, Megahertz(1530));
  house.start(governing("assure"));
  run_job(house, 1);
  models = models_in(house, house.models().simulated);
  ASSERT_EQ(models.size(), 1u);  // it was known again
  EXPECT_LT(models[0].age, 10s);
  EXPECT_FALSE(std::filesystem::exists(house.models().real));
}

TEST(Worker, ADryRunKeepsNoModels) {
  House house(1);
  Settings settings = governing("assure");
  settings.dry_run = true;
  house.start(settings);
  run_job(house, 0);
  EXPECT_FALSE(std::filesystem::exists(house.models().simulated));
}

TEST(Worker, ModelsThatCannotBeKeptAreToldOnce) {
  House house(1);
  std::filesystem::create_directories(house.folder + "/state");
  std::filesystem::create_symlink("/proc/derate/models.db", house.models().simulated);
  house.start(governing("assure"));
  for (int i = 0; i < 2; ++i) run_job(house, 0);
  EXPECT_EQ(std::count_if(house.logged.begin(), house.logged.end(),
                          [](const auto& text) { return text.starts_with("models of work"); }),
            1);
  EXPECT_FALSE(house.left().empty());  // governed all the same
}

TEST_P(LateWorker, BeatsReachTheGovernorAndTheStateFile) {
  LateHouse house(2, GetParam());
  house.person(0, 17, 1000);
  house.work(0, "GeMM");
  house.start(governing("assure"));
  house.run(listed());
  for (int step = 1; step <= 5; ++step) {
    house.beat(1000, 17, "done=" + std::to_string(step) + " phase=warm-up max_loss=0.02");
    house.beat(1001, 18, "done=99 gpu=0 max_loss=0");  // nobody here
    house.beat(1000, 17, "nonsense");
    house.run(1s);
  }
  Json gpu = first_gpu(house);
  EXPECT_EQ(gpu["work"], "train");
  EXPECT_EQ(gpu["beat_done"], 5);
  EXPECT_EQ(gpu["phase"], "warm-up");
  EXPECT_EQ(gpu["promised_performance_ratio"], 0.98);
  EXPECT_EQ(gpu["promise_from"], "beat");
  const Json beats = parse_json(*read_file(house.folder + "/run/state.json"))["beats"];
  EXPECT_EQ(beats["heard"], 10);
  EXPECT_EQ(beats["malformed"], 5);
  EXPECT_EQ(beats["unplaced"], 1);
  house.run(30s);
  gpu = first_gpu(house);
  EXPECT_FALSE(gpu.contains("beat_done"));
  EXPECT_EQ(gpu["promised_performance_ratio"], 0.98);
}

TEST(Worker, TheGpusOfOneProcessThatAreBusyAlikeAreOneUnit) {
  House house(3);
  for (const int gpu : {0, 1}) {
    house.person(gpu, 17, 1000);
    house.work(gpu, "GeMM");
  }
  house.person(2, 18, 1000);
  house.work(2, "GeMM");
  house.start(governing("assure"));
  house.run(10s);
  EXPECT_FALSE(first_gpu(house).contains("step_group"));
  EXPECT_EQ(first_gpu(house)["may_wait"], true);
  house.run(60s);
  const Json gpus = parse_json(*read_file(house.folder + "/run/state.json"))["gpus"];
  ASSERT_TRUE(gpus[0].contains("step_group")) << gpus[0];
  EXPECT_EQ(gpus[0]["step_group"], gpus[1]["step_group"]);
  EXPECT_EQ(gpus[0]["asked_clock_mhz"], gpus[1]["asked_clock_mhz"]);
  EXPECT_FALSE(gpus[2].contains("step_group"));
  for (const Json& gpu : gpus) EXPECT_FALSE(gpu.contains("may_wait"));
  house.trouble(1).processes->clear();
  house.run(10s);
  EXPECT_FALSE(first_gpu(house).contains("step_group"));
}

TEST_P(LateWorker, RulesAndTheEnvironmentPromise) {
  LateHouse house(1, GetParam());
  house.person(0, 17, 1000);
  Settings settings = governing("assure");
  settings.jobs = {{"ours", "1000", "tr*", "batch", {}, "derate.toml:1:1"}};
  house.start(settings);
  house.run(listed());
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.7);
  EXPECT_EQ(first_gpu(house)["promise_from"], "ours");
  const std::size_t told = house.logged.size();
  house.person(0, 18, 1001).asked = "inference";
  house.run(listed());
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.95);
  EXPECT_EQ(first_gpu(house)["every_phase"], true);
  house.person(0, 19, 1001).asked = "5%";
  house.run(listed());
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.95);
  EXPECT_EQ(house.logged.size(), told + 1);
  EXPECT_TRUE(house.has_logged("process 19: DERATE_DELTA '5%'"));
  // New rules do not begin anything anew.
  house.trouble(0).processes->resize(1);
  const auto audit = [&] {  // without a write there is none
    const auto text = read_file(house.audit_file());
    return text.ok() ? *text : std::string();
  };
  const std::size_t writes = audit().size();
  settings.max_delta = 0.2;
  house.worker->reload(settings);
  house.run(300ms);
  house.run(listed());
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.8);
  EXPECT_EQ(audit().find("another policy comes", writes), std::string::npos);
}

// What a policy promises by itself is not changed where it does not listen.
TEST(Worker, PublishedPoliciesKeepTheirOwnPromise) {
  House house(1);
  house.person(0, 17, 1000).asked = "0.3";
  house.start(governing("geepafs"));
  house.run(3s);
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.9);
  EXPECT_EQ(first_gpu(house)["max_loss_ratio"], 0.3);
  EXPECT_FALSE(first_gpu(house).contains("promise_from"));
}

// Whatever is asked and whatever fails: in the end every GPU is as found.
RC_GTEST_PROP(WorkerProperty, EveryLifeEndsAsItBegan, (unsigned seed)) {
  std::mt19937_64 random(seed);
  LateHouse house(3, static_cast<int>(random() % 4) * 2);
  const std::vector<const char*> policies{"max-freq", "efficient-fix", "geepafs", "power-cap",
                                          "utiliz-scale"};
  house.work(0, "GeMM");
  house.start(random() % 2 == 0 ? governing() : Settings{});
  for (int i = 0; i < 30; ++i) {
    const int gpu = static_cast<int>(random() % 3);
    const std::string name = std::to_string(gpu);
    SimFaults& faults = house.trouble(gpu).faults;
    switch (random() % 10) {
      case 0:
        answer(house, {{"command", "pause"}});
        break;
      case 1:
        answer(house, {{"command", "resume"}});
        break;
      case 2:
        answer(house, {{"command", "release"}, {"gpus", name}});
        break;
      case 3:
        faults.gpu_lost = !faults.gpu_lost;
        break;
      case 4:
        faults.no_permission = !faults.no_permission;
        break;
      case 5:
        house.worker->reload(governing(policies[random() % policies.size()]));
        break;
      case 6:
        house.run(std::chrono::milliseconds(random() % 20'000));
        break;
      case 7:
        house.trouble(gpu).hangs = !house.trouble(gpu).hangs;
        break;
      default:
        answer(house, {{"command", "policy-set"},
                       {"policy", policies[random() % policies.size()]},
                       {"gpus", name}});
    }
    house.run(std::chrono::milliseconds(random() % 1'000));
  }
  for (int i = 0; i < 3; ++i) house.trouble(i).faults = {}, house.trouble(i).hangs = false;
  house.run(2min);
  RC_ASSERT(house.worker->stop().ok());
  house.worker.reset();
  // What was lost when it was to be given back is the next start's to restore.
  house.start();
  house.run(1s);
  for (int i = 0; i < 3; ++i) {
    RC_LOG() << "GPU " << i << ", journals " << house.left().size() << "\n";
    for (const std::string& text : house.logged) RC_LOG() << text << "\n";
    RC_ASSERT(!house.sim(i).locked());
    RC_ASSERT(house.sim(i).power_limit() == house.sim(i).chip().power_limits.factory);
  }
  RC_ASSERT(house.left().empty());
}

// --- what programs ask ---------------------------------------------------------------------------

Json call(House& house, std::uint64_t connection, const Json& request) {
  return parse_json(house.call(connection, json_text(request)));
}

// The answer that comes after a round or more.
Json later(House& house, std::uint64_t connection) {
  for (int i = 0; i < 100; ++i) {
    (void)house.round();
    for (const auto& [to, text] : house.worker->clients().take_late())
      if (to == connection) return parse_json(text);
  }
  return {};
}

TEST(WorkerWindows, AreMeasuredByTheCounterThatIsReadAnyway) {
  House house(2);
  house.work(0, "GeMM");
  house.start();
  house.run(2050ms);
  EXPECT_EQ(call(house, 1, {{"command", "gpus"}})["gpus"].size(), 2u);
  const Joules before = house.sim(0).energy();
  const Json begun =
      call(house, 1, {{"command", "window-begin"}, {"name", "epoch"}, {"gpus", "0"}});
  EXPECT_EQ(begun["ok"], true) << begun;
  EXPECT_EQ(begun["gpus"][0]["uuid"], House::uuid(0));
  house.run(20s);
  const Joules used = house.sim(0).energy() - before;
  EXPECT_EQ(call(house, 1, {{"command", "windows"}})["windows"].size(), 1u);
  EXPECT_EQ(house.call(1, R"({"command":"window-end","name":"epoch"})"), "");
  const Json ended = later(house, 1);
  ASSERT_EQ(ended["ok"], true) << ended;
  const Json& gpu = ended["gpus"][0];
  EXPECT_EQ(gpu["source"], "counter");
  EXPECT_EQ(gpu["settled"], true);
  EXPECT_EQ(gpu["agree"], true);
  EXPECT_NEAR(ended["time_seconds"].get<double>(), 20, 0.2);
  // The counter moves in steps of 0.1 s: two of them of 20 s are 1 %, a round at each end another.
  EXPECT_NEAR(gpu["energy_joules"].get<double>() / used.value(), 1, 0.02);
  EXPECT_EQ(gpu["energy_joules"], ended["energy_joules"]);
}

TEST(WorkerWindows, AnEndIsSettledInTheNextRound) {
  House house(1);
  house.start();
  house.run(1550ms);  // between two readings of the counter
  call(house, 1, {{"command", "window-begin"}, {"name", "step"}});
  house.run(250ms);
  EXPECT_EQ(house.call(1, R"({"command":"window-end","name":"step"})"), "");
  const Instant asked = house.clock.now();
  EXPECT_EQ(later(house, 1)["gpus"][0]["settled"], true);
  EXPECT_LE(house.clock.now() - asked, 200ms);
  call(house, 1, {{"command", "window-begin"}, {"name", "step"}});
  house.run(300ms);
  const Json now = call(house, 1, {{"command", "window-end"}, {"name", "step"}, {"wait", false}});
  EXPECT_EQ(now["gpus"][0]["settled"], false);
  EXPECT_NE(now["gpus"][0]["source"], "counter");
}

TEST(WorkerWindows, AGpuThatIsLostHoldsNoAnswerBack) {
  House house(1);
  house.start();
  house.run(2s);
  call(house, 1, {{"command", "window-begin"}, {"name", "step"}});
  house.run(1s);
  house.trouble(0).faults.gpu_lost = true;
  house.run(10s);
  house.call(1, R"({"command":"window-end","name":"step"})");
  const Json gpu = later(house, 1)["gpus"][0];
  EXPECT_EQ(gpu["settled"], false);
  EXPECT_NEAR(gpu["uncovered_seconds"].get<double>(), 8, 0.3);  // 10 s less the held reading's 2 s
}

// A reading of the power stands until the next one comes, however rare they are.
TEST(WorkerWindows, AReloadTakesInHowLongAReadingHolds) {
  House house(1);
  Settings settings;
  house.start(settings);
  settings.observer.every_s = 20;
  house.worker->reload(settings);
  house.run(21s);
  call(house, 1, {{"command", "window-begin"}, {"name", "step"}});
  house.run(15s);
  const Json gpu = call(house, 1, {{"command", "windows"}})["windows"][0]["gpus"][0];
  EXPECT_EQ(gpu.value("uncovered_seconds", 0.0), 0) << gpu;
}

TEST(WorkerWindows, BelongToTheirConnection) {
  House house(1);
  house.start();
  for (const std::uint64_t connection : {1, 2})
    call(house, connection, {{"command", "window-begin"}, {"name", "mine"}});
  house.call(1, R"({"command":"window-end","name":"mine"})");
  house.worker->clients().closed({7, 1000, 1});
  house.run(2s);
  EXPECT_TRUE(house.worker->clients().take_late().empty());
  EXPECT_EQ(call(house, 1, {{"command", "windows"}})["windows"].size(), 0u);
  EXPECT_EQ(call(house, 2, {{"command", "windows"}})["windows"].size(), 1u);
}

TEST(WorkerWindows, WhatMakesNoSenseIsRefused) {
  House house(1);
  house.start();
  const auto refused = [&](const Json& request) {
    const Json said = call(house, 1, request);
    EXPECT_EQ(said["ok"], false) << request;
    return said["error"].get<std::string>();
  };
  EXPECT_EQ(refused(Json::array()), "wanted a JSON object");
  EXPECT_TRUE(refused({{"command", "window"}})
                  .starts_with("command 'window': allowed are window-begin, window-end, "
                               "window-cancel, windows, gpus, "));
  EXPECT_EQ(refused({{"command", "pause"}}),
            "command 'pause': wants the role operator, callers of this socket have user");
  EXPECT_EQ(refused({{"command", "window-begin"}}), "window-begin: name: is missing");
  EXPECT_EQ(refused({{"command", "window-begin"}, {"name", 7}}),
            "window-begin: name 7: wanted a text");
  EXPECT_EQ(refused({{"command", "window-begin"}, {"name", "a"}, {"restart", 1}}),
            "window-begin: restart 1: wanted true or false");
  EXPECT_NE(refused({{"command", "window-begin"}, {"name", "a"}, {"gpus", "7"}}).find("'7'"),
            std::string::npos);
  EXPECT_EQ(refused({{"command", "windows"}, {"name", "a"}}),
            "windows: unknown field 'name'; there are none");
  EXPECT_EQ(refused({{"command", "window-end"}, {"name", "a"}}), "no window 'a' is open; none is");
  answer(house, {{"command", "pause"}});
  EXPECT_EQ(refused({{"command", "window-begin"}, {"name", "a"}}),
            "no GPU is open now: try again later");
}

// A window has its own GPU's counter read, no faster than that moves, and nothing else that is
// expensive.
TEST(WorkerWindows, AskForNothingButTheirOwnCounter) {
  House house(2, "H200");
  Settings settings;
  settings.govern = true;
  settings.policy = "assure";
  settings.activity_every_s = settings.processes_every_s = settings.energy_every_s = 60;
  house.start(settings);
  house.run(1s);
  int counters[2] = {0, 0}, expensive = 0, rounds = 0;
  house.note = [&](const Record& record) {
    if (!record.sample) return;
    ++rounds;
    counters[record.gpu] += record.sample->energy ? 1 : 0;
    expensive += record.sample->activity != Activity{} || record.sample->tenants ? 1 : 0;
  };
  const Instant begin = house.clock.now();
  while (house.clock.now() < begin + 10s) {
    call(house, 1, {{"command", "window-begin"}, {"name", "a"}, {"gpus", "1"}, {"restart", true}});
    (void)house.round();
  }
  EXPECT_GT(rounds, 0);
  EXPECT_EQ(counters[0], 0);
  EXPECT_GT(counters[1], 10);
  EXPECT_LE(counters[1], 101);
  EXPECT_EQ(expensive, 0);
}

// Programs ask for readings of the counter, and get one a round at most.
TEST(WorkerWindows, ManyWindowsCostOneReadingARound) {
  House house(1);
  house.start();
  house.run(1s);
  int readings = 0, rounds = 0;
  house.note = [&](const Record& record) {
    ++rounds;
    readings += record.sample && record.sample->energy ? 1 : 0;
  };
  house.start();
  readings = rounds = 0;
  for (int i = 0; i < 20; ++i) {
    for (const char* name : {"a", "b", "c"})
      call(house, 1, {{"command", "window-begin"}, {"name", name}, {"restart", true}});
    (void)house.round();
  }
  EXPECT_EQ(readings, rounds);
  readings = 0;
  house.run(2s);
  EXPECT_LE(readings, 4);  // one a second again
}

}  // namespace
}  // namespace derate::cli
