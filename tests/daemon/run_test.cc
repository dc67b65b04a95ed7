// Runs of ordinary users through the daemon, on simulated GPUs and virtual time, down to the
// journal.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <unistd.h>

#include "base/json.h"
#include "house.h"
#include "policy/registry/registry.h"
#include "service/records/run_figures.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

constexpr std::uint32_t kUser = 1000, kOther = 1001;

Settings for_everyone() {
  Settings out;
  out.run.users = "everyone";
  return out;
}

struct RunHouse : House {
  explicit RunHouse(int gpus = 2, const Settings& settings = for_everyone()) : House(gpus) {
    for (int gpu = 0; gpu < gpus; ++gpu) {
      work(gpu, "BWtest");
      trouble(gpu).processes.emplace();  // those that person() adds alone
    }
    start(settings);
  }
  Json client(const Json& request, std::uint32_t uid = kUser, std::uint64_t connection = 1,
              std::vector<gid_t> groups = {}) {
    Peer peer{static_cast<pid_t>(uid), uid, connection, std::move(groups)};
    peer.process = process;
    return parse_json(worker->clients().handle(json_text(request), peer).value_or(""));
  }
  Json begin(const char* gpus = "0", std::uint32_t uid = kUser, std::uint64_t connection = 1) {
    return client({{"command", "run-begin"}, {"policy", "assure"}, {"gpus", gpus}}, uid,
                  connection);
  }
  Json show(int gpu = 0, std::uint64_t connection = 1, std::uint32_t uid = kUser) {
    const auto at = static_cast<std::size_t>(gpu);
    return client({{"command", "run-show"}}, uid, connection)["gpus"][at];
  }
  // A process of the run's command.
  void command(int gpu, std::int64_t pid, std::uint32_t uid = kUser) {
    person(gpu, pid, uid).ancestors = {5, static_cast<std::int64_t>(uid)};
  }
  SharedHandle process;  // the caller's
  bool governed(int gpu) { return worker->fleet().gpus()[static_cast<std::size_t>(gpu)].governed; }
};

// If another user's process has the PID now, it does not count as the first user's.
TEST(DaemonRun, EndsWhereAnotherUserHasGotTheNumberOfItsProcess) {
  RunHouse house;
  EXPECT_EQ(house.begin()["ok"], true);
  house.person(0, 17, kUser).started = 5;
  house.run(60s);
  ASSERT_TRUE(house.governed(0));
  house.people[17].uid = kUser + 1;  // between two lists
  house.people[17].started = 6;
  house.run(3s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_EQ(house.show()["why"], "a process of user 1001 works there, too");
}

// Another process may hold the connection, but the run is of the process that began it.
TEST(DaemonRun, EndsWithTheProcessThatBeganIt) {
  RunHouse house;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  UniqueFd lives(ends[1]);
  house.process = std::make_shared<const ProcessHandle>(UniqueFd(ends[0]));  // readable at its end
  EXPECT_EQ(house.begin()["ok"], true);
  house.person(0, 17, kUser);
  house.run(60s);
  ASSERT_TRUE(house.governed(0));
  lives = UniqueFd();
  house.run(1s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_EQ(house.show()["why"], "its `derate run` has ended");
}

TEST(DaemonRun, GovernsOnceTheUserWorksThereAndGivesBackAtTheEnd) {
  RunHouse house;
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(3s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_EQ(house.show()["why"], "no process of user 1000 works there yet");
  EXPECT_TRUE(house.left().empty());
  house.person(0, 17, kUser);
  house.run(90s);
  EXPECT_TRUE(house.governed(0));
  EXPECT_FALSE(house.governed(1));
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_EQ(first_gpu(house)["assigned"]["by"], "run");
  EXPECT_EQ(first_gpu(house)["assigned"]["who"], "uid 1000, pid 1000, run 1");
  const Json end = house.client({{"command", "run-end"}});
  const auto view = answer_of<RunView>(end);
  ASSERT_TRUE(view.ok()) << end;
  EXPECT_EQ(view->policy, "assure");
  EXPECT_NEAR(view->gpus[0].time_seconds, 89, 2);
  EXPECT_EQ(view->gpus[0].promised_performance_ratio, 0.9);
  ASSERT_TRUE(view->gpus[0].saving);
  EXPECT_GT(energy_saving(*figures_of(view->gpus[0]).saving)->mean, 0.1);
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.left().empty());
  EXPECT_EQ(house.client({{"command", "run-show"}})["code"], "not_found");
}

TEST(DaemonRun, EndsWithItsConnection) {
  RunHouse house;
  house.person(0, 17, kUser);
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(20s);
  EXPECT_TRUE(house.sim(0).locked());
  house.worker->clients().closed({1000, kUser, 1});
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_FALSE(house.governed(0));
}

TEST(DaemonRun, IsRefusedBesideAnotherUsersProcessAndSaysWhose) {
  RunHouse house;
  house.person(0, 17, kUser);
  house.person(0, 18, kOther);
  house.run(2s);
  const Json refused = house.begin();
  EXPECT_EQ(refused["code"], "busy");
  EXPECT_EQ(refused["error"], "GPU 0: a process of user 1001 works there, too");
  // Of GPUs that were not named, those that are free of others are governed.
  house.command(1, 19);
  house.run(2s);
  EXPECT_EQ(house.begin("")["ok"], true);
  house.run(10s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_TRUE(house.governed(1));
}

TEST(DaemonRun, EndsWhereAnotherUserComesAndDoesNotBeginAgain) {
  RunHouse house;
  house.person(0, 17, kUser);
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(20s);
  EXPECT_TRUE(house.governed(0));
  house.person(0, 18, kOther);
  house.run(3s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_EQ(house.show()["why"], "a process of user 1001 works there, too");
  const double time = house.show()["time_seconds"];
  house.trouble(0).processes->pop_back();
  house.run(10s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_EQ(house.show()["time_seconds"], time);
}

// A process whose user is not known could be anybody's.
TEST(DaemonRun, IsNotBesideAProcessOfNobodyKnown) {
  RunHouse house;
  house.person(0, 17, kUser);
  house.trouble(0).processes->push_back({99, "", {}, {}});
  house.run(2s);
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(2s);
  EXPECT_EQ(house.show()["why"], "a process works there of which it is not known whose it is");
  house.trouble(0).processes->pop_back();
  house.run(2s);
  EXPECT_TRUE(house.governed(0));
  // One that has just come or gone is not known for a moment.
  house.trouble(0).processes->push_back({99, "", {}, {}});
  house.run(3s);
  EXPECT_TRUE(house.governed(0));
  house.run(5s);
  EXPECT_FALSE(house.governed(0));
}

TEST(DaemonRun, TwoUsersHaveTheirOwn) {
  RunHouse house;
  house.command(0, 17);
  house.command(1, 18, kOther);
  house.run(2s);
  EXPECT_EQ(house.begin("", kUser, 1)["ok"], true);
  EXPECT_EQ(house.begin("", kOther, 2)["ok"], true);
  house.run(10s);
  EXPECT_EQ(house.show(0, 1)["governed"], true);
  EXPECT_EQ(house.show(1, 1)["governed"], false);
  EXPECT_EQ(house.show(1, 2, kOther)["governed"], true);
  // Another of one's own waits its turn.
  EXPECT_EQ(house.begin("0", kUser, 3)["ok"], true);
  EXPECT_EQ(house.show(0, 3)["why"], "the run of uid 1000, pid 1000, run 1 governs it");
  house.client({{"command", "run-end"}}, kUser, 1);
  house.run(2s);
  EXPECT_EQ(house.show(0, 3)["why"], "another run there has just ended");
  house.run(5s);
  EXPECT_EQ(house.show(0, 3)["governed"], true);
}

TEST(DaemonRun, WhoMayIsAllowedAlone) {
  Settings settings;
  settings.run.users = "4242";
  RunHouse house(1, settings);
  const Json request = {{"command", "run-begin"}, {"policy", "assure"}, {"gpus", "0"}};
  EXPECT_EQ(house.client(request, kUser, 1, {7, 100})["code"], "no_permission");
  EXPECT_EQ(house.client(request, kUser, 1, {7, 4242})["ok"], true);
  settings.run.users = "root";
  house.worker->reload(settings);
  EXPECT_EQ(house.client(request, kUser, 2, {0, 4242})["code"], "no_permission");
  EXPECT_EQ(house.client(request, 0, 3)["ok"], true);
}

// Tighter than what the operator has promised, never looser; and of the policies that are allowed.
TEST(DaemonRun, TightensWhatTheOperatorPromisedAndNeverLoosensIt) {
  Settings settings = for_everyone();
  settings.govern = true;
  settings.policy_settings = {{"assure", "delta", "0.05", "test"}};
  RunHouse house(2, settings);
  house.person(0, 17, kUser);
  const auto begin = [&](const char* policy, const Json& set) {
    Json out =
        house.client({{"command", "run-begin"}, {"policy", policy}, {"set", set}, {"gpus", "0"}});
    house.client({{"command", "run-end"}});
    return out.value("ok", false) ? std::string("ok") : out["error"].get<std::string>();
  };
  EXPECT_EQ(begin("assure", {"delta=0.05"}), "ok");
  EXPECT_EQ(begin("assure", {"delta=0.02"}), "ok");
  EXPECT_EQ(begin("max-freq", Json::array()), "ok");
  EXPECT_EQ(begin("assure", {"delta=0.06"}),
            "GPU 0: assure may lose 6 %, and it is governed by assure, which may lose 5 %: allowed "
            "is less");
  EXPECT_NE(begin("geepafs", {"delta=0.02"}).find("may choose from assure, max-freq"),
            std::string::npos);
  EXPECT_EQ(begin("assure", {"tick=10"}), "'tick=10': user 1000 may set delta alone");
  // What the operator says meanwhile holds, too.
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(5s);
  EXPECT_EQ(house.show()["governed"], true);
  house.ask(R"({"command":"policy-set","policy":"assure","set":["delta=0.03"],"gpus":"0"})");
  house.run(5s);
  EXPECT_EQ(house.show()["governed"], false);
  EXPECT_EQ(first_gpu(house)["promised_performance_ratio"], 0.97);
}

TEST(DaemonRun, WhatAnOperatorHoldsWithoutAPromiseOrAWriteStaysSo) {
  RunHouse house;
  house.person(0, 17, kUser);
  house.ask(R"({"command":"policy-set","policy":"power-cap","gpus":"0"})");
  EXPECT_EQ(house.begin()["error"],
            "GPU 0: it is governed by power-cap, which promises nothing that a run could keep");
  house.ask(R"({"command":"policy-set","policy":"assure","dry_run":true,"gpus":"0"})");
  EXPECT_EQ(house.begin()["code"], "no_permission");
  house.ask(R"({"command":"policy-set","policy":"assure","set":["confidence=0.999"],"gpus":"0"})");
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(5s);
  const auto& params = house.worker->fleet().gpus()[0].policy()->policy.params;
  EXPECT_EQ(params.number("confidence"), 0.999);
  // One that comes while the run governs ends it.
  house.ask(R"({"command":"policy-set","policy":"power-cap","gpus":"0"})");
  house.run(2s);
  EXPECT_EQ(house.show()["governed"], false);
  EXPECT_EQ(first_gpu(house)["policy"], "power-cap");
}

// Parameters that an operator has set on one GPU of a run stay on that GPU.
TEST(DaemonRun, AnOperatorsParametersOfOneGpuStayThere) {
  RunHouse house;
  for (const int gpu : {0, 1}) house.person(gpu, 17 + gpu, kUser);
  house.ask(R"({"command":"policy-set","policy":"assure","set":["confidence=0.999"],"gpus":"0"})");
  EXPECT_EQ(house.begin("0,1")["ok"], true);
  house.run(5s);
  const auto confidence = [&](std::size_t gpu) {
    return house.worker->fleet().gpus()[gpu].policy()->policy.params.number("confidence");
  };
  ASSERT_TRUE(house.governed(0) && house.governed(1));
  EXPECT_EQ(confidence(0), 0.999);
  EXPECT_EQ(confidence(1), policy_params(**find_policy("assure"), {})->number("confidence"));
}

TEST(DaemonRun, AReloadHoldsForRunsThatGovern) {
  for (const auto& change : std::vector<std::function<void(Settings&)>>{
           [](Settings& s) { s.run.users = "root"; }, [](Settings& s) { s.run.policies = ""; },
           [](Settings& s) { s.max_delta = 0.05; }, [](Settings& s) { s.dry_run = true; }}) {
    RunHouse house(1);
    house.person(0, 17, kUser);
    EXPECT_EQ(house.begin()["ok"], true);
    house.run(5s);
    EXPECT_TRUE(house.governed(0));
    Settings settings = for_everyone();
    change(settings);
    house.worker->reload(settings);
    house.run(2s);
    EXPECT_EQ(house.show()["governed"], false);
    EXPECT_FALSE(house.sim(0).locked());
  }
}

// Who has come since the last list is not known.
TEST(DaemonRun, EndsWhereProcessesAreNotListedAnyMore) {
  RunHouse house(1);
  house.person(0, 17, kUser);
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(5s);
  EXPECT_TRUE(house.governed(0));
  house.trouble(0).fails_to_list = true;
  house.run(12s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_EQ(house.show()["why"], "a process works there of which it is not known whose it is");
}

TEST(DaemonRun, EndsWhereNobodyWorksAnyMore) {
  RunHouse house(1);
  house.person(0, 17, kUser);
  EXPECT_EQ(house.begin()["ok"], true);
  house.run(5s);
  house.trouble(0).processes->clear();
  house.run(30s);
  EXPECT_TRUE(house.governed(0));
  house.run(40s);
  EXPECT_FALSE(house.governed(0));
}

TEST(DaemonRun, LosesNoMoreThanIsAllowedAtAll) {
  Settings settings = for_everyone();
  settings.max_delta = 0.2;
  RunHouse house(1, settings);
  Json wanted = {{"command", "run-begin"}, {"policy", "assure"}, {"set", {"delta=0.25"}}};
  EXPECT_EQ(house.client(wanted)["code"], "no_permission");
  wanted["set"] = {"delta=0.2"};
  EXPECT_EQ(house.client(wanted)["ok"], true);
}

// Where nobody said which GPUs, another job of the same user has nothing to do with it.
TEST(DaemonRun, GovernsWhereItsCommandWorksAlone) {
  RunHouse house;
  house.command(0, 17);
  house.person(1, 18, kUser);
  EXPECT_EQ(house.begin("")["ok"], true);
  house.run(5s);
  EXPECT_TRUE(house.governed(0));
  EXPECT_FALSE(house.governed(1));
  EXPECT_EQ(house.show(1)["why"], "no process of the command works there (-i names GPUs)");
}

// The account of a run is of its command. Work of the same user's other job is marked.
TEST(DaemonRun, SaysWhetherItsCommandWorkedThereAndWhereElseItDoes) {
  RunHouse house;
  house.person(0, 17, kUser);
  EXPECT_EQ(house.begin("0")["ok"], true);
  house.run(5s);
  EXPECT_TRUE(house.governed(0));
  EXPECT_EQ(house.show()["command_seen"], false);
  house.command(1, 19);
  house.run(5s);
  EXPECT_EQ(house.show()["command_seen"], false);
  EXPECT_FALSE(house.governed(1));
  const Json notes = house.client({{"command", "run-show"}})["notes"];
  ASSERT_EQ(notes.size(), 2u) << notes;
  const std::string uuid = house.worker->fleet().gpus()[0].uuid();
  EXPECT_EQ(
      std::string(notes[0]).find("GPU 0 was named by its number, which is derated's: " + uuid), 0u);
  EXPECT_EQ(std::string(notes[1]).find("GPU 1 ("), 0u);
  EXPECT_NE(std::string(notes[1]).find("a process of the command works there"), std::string::npos);
  house.command(0, 20);
  house.run(5s);
  EXPECT_EQ(house.show()["command_seen"], true);
  // A GPU that was named by UUID needs no note. Other GPUs with work of the command are noted at
  // once.
  EXPECT_EQ(house.begin(uuid.c_str(), kUser, 2)["ok"], true);
  const Json others = house.client({{"command", "run-show"}}, kUser, 2)["notes"];
  ASSERT_EQ(others.size(), 1u) << others;
  EXPECT_EQ(std::string(others[0]).find("GPU 1 ("), 0u) << others;
}

// A container or a Slurm task is no descendant of the command: if it began later, it counts as the
// command's.
TEST(DaemonRun, TellsWhatBeganBeforeItFromWhatBeganSince) {
  RunHouse house;
  house.people[kUser].started = 50;  // the `derate run`
  house.person(0, 17, kUser).started = 60;
  house.person(1, 18, kUser).started = 40;
  EXPECT_EQ(house.begin("0,1")["ok"], true);
  house.run(5s);
  EXPECT_TRUE(house.governed(0));
  for (const int gpu : {0, 1}) EXPECT_EQ(house.show(gpu)["command_seen"], false);
  EXPECT_EQ(house.show(0)["others_seen"], false);
  EXPECT_EQ(house.show(1)["others_seen"], true);
}

TEST(DaemonRun, ItsUserReleasesItWhileTheCommandGoesOn) {
  RunHouse house;
  house.command(0, 17);
  EXPECT_EQ(house.begin("0")["ok"], true);
  house.run(5s);
  const Json release = {{"command", "run-release"}, {"gpus", "0"}};
  EXPECT_EQ(house.client(release, kOther, 2)["code"], "not_found");
  EXPECT_TRUE(house.governed(0));
  EXPECT_EQ(house.client(release, kUser, 3)["message"], "GPU 0 is given back");
  EXPECT_FALSE(house.sim(0).locked());
  house.run(5s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_EQ(house.show()["why"], "its user has released it");
}

TEST(DaemonRun, AnOperatorsReleaseAndPauseEndIt) {
  RunHouse house;
  house.command(0, 17);
  house.command(1, 18);
  EXPECT_EQ(house.begin("")["ok"], true);
  house.run(5s);
  EXPECT_TRUE(house.governed(0));
  house.ask(R"({"command":"release","gpus":"0"})");
  house.run(2s);
  EXPECT_FALSE(house.governed(0));
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_EQ(house.show(0)["governed"], false);
  EXPECT_EQ(house.begin("0", kUser, 2)["code"], "no_permission");
  EXPECT_TRUE(house.governed(1));
  house.ask(R"({"command":"pause"})");
  EXPECT_FALSE(house.sim(1).locked());
  house.ask(R"({"command":"resume"})");
  house.run(5s);
  EXPECT_EQ(house.show(1)["governed"], false);
  EXPECT_TRUE(house.left().empty());
}

TEST(DaemonRun, DryRunOfTheConfigurationWritesNothing) {
  Settings settings = for_everyone();
  settings.dry_run = true;
  RunHouse house(1, settings);
  house.person(0, 17, kUser);
  EXPECT_EQ(house.begin()["dry_run"], true);
  house.run(10s);
  EXPECT_TRUE(house.governed(0));
  EXPECT_FALSE(house.sim(0).locked());
}

std::optional<double> any_optional() {
  return *rc::gen::arbitrary<bool>() ? std::optional(*rc::gen::inRange(0, 100000) / 8.0)
                                     : std::nullopt;
}

RC_GTEST_PROP(RunFigures, GoOverTheSocketAndBackUnchanged, ()) {
  const auto number = [] { return *rc::gen::inRange(0, 100000) / 8.0; };
  const auto some = [](const std::optional<double>& value, auto one) {
    using Q = decltype(one);
    return value ? std::optional(Q(*value)) : std::nullopt;
  };
  GpuFigures figures{.time = from_seconds(number()),
                     .energy = some(any_optional(), Joules()),
                     .integrated = some(any_optional(), Joules()),
                     .from_counter = *rc::gen::arbitrary<bool>(),
                     .counter_still = from_seconds(number()),
                     .check_ratio = any_optional(),
                     .mean_power = some(any_optional(), Watts()),
                     .mean_clock = some(any_optional(), Megahertz())};
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
    figures.clocks[Megahertz(number())] = from_seconds(number());
    figures.asked_clocks[Megahertz(number())] = from_seconds(number());
  }
  figures.released = from_seconds(number());
  figures.capped = from_seconds(number());
  figures.thermal = from_seconds(number());
  figures.heartbeats = from_seconds(number());
  figures.launches = from_seconds(number());
  figures.launch_unsteadiness = any_optional();
  figures.heartbeats_moved = any_optional();
  if (*rc::gen::arbitrary<bool>())
    figures.saving = Saving{.energy = Joules(number()),
                            .energy_at_highest = Joules(number()),
                            .energy_sd = Joules(number()),
                            .time = from_seconds(number()),
                            .time_at_highest = from_seconds(number()),
                            .time_sd = from_seconds(number())};
  figures.expected_performance = some(any_optional(), Fraction());
  figures.clock_ratio = some(any_optional(), Fraction());
  figures.expected_coverage = Fraction(number());
  figures.ticks = *rc::gen::inRange(0, 1000);
  figures.failed_reads = *rc::gen::inRange(0, 1000);
  figures.writes = *rc::gen::inRange(0, 1000);
  figures.failed_writes = *rc::gen::inRange(0, 1000);
  figures.last_error = *rc::gen::element<std::string>("", "the GPU is lost");
  RunGpuView view;
  put_figures(view, figures);
  const Json sent = parse_json(json_text(answer_json(RunView{.policy = "assure", .gpus = {view}})));
  const auto back = answer_of<RunView>(sent);
  RC_ASSERT(back.ok());
  RC_ASSERT(figures_of(back->gpus[0]) == figures);
}

}  // namespace
}  // namespace derate::cli
