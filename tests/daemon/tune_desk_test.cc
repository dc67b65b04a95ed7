// Jobs that recur, through the worker's client desk, on simulated GPUs and virtual time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.h"
#include "house.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

class WorkerTune : public testing::Test {
 protected:
  explicit WorkerTune(int gpus = 1) : house(gpus) {
    for (int i = 0; i < gpus; ++i) house.work(i, "GeMM");
    settings.tune_lease_s = 30;
    house.start(settings);
    house.run(2s);
  }

  Json ask(const Json& request, std::uint32_t uid = 1000) {
    return parse_json(house.worker->clients().handle(json_text(request), {7, uid, 1}).value_or(""));
  }
  Json create(Json over = Json::object()) {
    Json spec = {{"name", "bert"},  {"batch_sizes", {8, 16, 32}},
                 {"default", 16},   {"target", 0.6},
                 {"max_epochs", 5}, {"policy", "zeus"}};
    spec.update(over);
    return ask({{"command", "tune-job-create"}, {"spec", spec}});
  }
  Json begin(Json over = Json::object(), std::uint32_t uid = 1000) {
    Json request = {{"command", "tune-trial-begin"}, {"job", "bert"}};
    if (over.is_object()) request.update(over);
    return ask(request, uid);
  }
  Json report(const Json& trial, double epoch, std::optional<double> metric = {}) {
    Json request = {{"command", "tune-trial-report"},
                    {"trial", trial["trial"]},
                    {"token", trial["token"]},
                    {"epoch", epoch}};
    if (metric) request["metric"] = *metric;
    return ask(request);
  }
  Json end(const Json& trial, const char* outcome) {
    return ask({{"command", "tune-trial-end"},
                {"trial", trial["trial"]},
                {"token", trial["token"]},
                {"outcome", outcome}});
  }
  Json history() { return ask({{"command", "tune-job-show"}, {"job", "bert"}})["history"]; }
  static std::string error_of(const Json& answer) { return answer.value("error", ""); }

  House house;
  Settings settings;
};

class WorkerTuneOfTwo : public WorkerTune {
 protected:
  WorkerTuneOfTwo() : WorkerTune(2) {}
};

TEST_F(WorkerTune, ATrialIsMeasuredByTheGpusCounter) {
  ASSERT_TRUE(create()["ok"]);
  const Json trial = begin();
  ASSERT_TRUE(trial["ok"]) << trial;
  EXPECT_EQ(trial["batch_size"], 16);
  EXPECT_EQ(trial["gpus"], House::uuid(0));
  const Joules before = house.sim(0).energy();
  house.run(10s);
  EXPECT_FALSE(report(trial, 1, 0.3)["stop"]);
  house.run(10s);
  const Json last = report(trial, 2, 0.7);
  EXPECT_TRUE(last["stop"]);
  EXPECT_EQ(last["verdict"], "reached");
  const Json ended = end(trial, "reached");
  EXPECT_EQ(ended["state"], "reached");
  const double truth = (house.sim(0).energy() - before).value();
  EXPECT_NEAR(ended["energy_joules"].get<double>(), truth, 0.03 * truth);
  EXPECT_NEAR(ended["time_seconds"].get<double>(), 20, 0.5);
  // eta 0.5, and 300 W is the highest limit of a V100.
  EXPECT_NEAR(
      ended["cost_joules"].get<double>(),
      0.5 * ended["energy_joules"].get<double>() + 0.5 * 300 * ended["time_seconds"].get<double>(),
      1e-6);
  EXPECT_NEAR(ended["epoch_cost_joules"].get<double>(), ended["cost_joules"].get<double>() / 2,
              0.05 * ended["cost_joules"].get<double>());
}

TEST_F(WorkerTune, ARestartLosesNoTrial) {
  ASSERT_TRUE(create()["ok"]);
  const Json trial = begin();
  house.run(10s);
  const Json before = report(trial, 1, 0.3);
  house.start(settings);
  house.run(20s);
  EXPECT_EQ(history().size(), 1u);
  const Json after = report(trial, 2, 0.4);
  ASSERT_TRUE(after["ok"]) << after;
  EXPECT_GT(after["energy_joules"].get<double>(), 2 * before["energy_joules"].get<double>());
  EXPECT_NEAR(after["time_seconds"].get<double>(), 30, 1);
  house.start(settings);
  house.run(31s);  // its client is gone: a fresh lease, and no more
  EXPECT_EQ(history()[0]["state"], "lost");
  EXPECT_NE(error_of(report(trial, 3, 0.9)).find("trial 1 was given up: nothing was heard"),
            std::string::npos);
  EXPECT_TRUE(house.was_told("trial 1 (lost)"));
  EXPECT_TRUE(begin({{"retry_of", 1}})["ok"]);
}

TEST_F(WorkerTune, AConnectionThatEndsEndsNoTrial) {
  ASSERT_TRUE(create()["ok"]);
  const Json trial = begin();
  house.worker->clients().closed({7, 1000, 1});
  house.run(5s);
  EXPECT_TRUE(report(trial, 1, 0.1)["ok"]);
}

TEST_F(WorkerTune, WhatMakesNoSenseIsRefused) {
  EXPECT_EQ(error_of(create({{"default", 24}})), "default 24: allowed are 8, 16, 32");
  EXPECT_EQ(error_of(create({{"batch_sizes", "8"}})),
            "tune-job-create: spec: batch_sizes \"8\": wanted a list");
  EXPECT_EQ(error_of(begin()), "there is no job 'bert'; there are none");
  ASSERT_TRUE(create()["ok"]);
  EXPECT_EQ(error_of(begin({{"gpus", "3"}})).find("GPU '3' is not here"), 0u);
  EXPECT_EQ(error_of(begin({{"selector", "energy"}})),
            "job 'bert' has a selector, a knob and a model of its own");
  EXPECT_EQ(error_of(begin({{"job", ""}, {"selector", "cheap"}})).substr(0, 17),
            "selector 'cheap':");
  const Json trial = begin();
  EXPECT_EQ(error_of(begin({}, 0)).find(House::uuid(0) + " has trial 1 of job 'bert'"), 0u);
  EXPECT_EQ(error_of(end(trial, "fine")), "outcome 'fine': allowed are missed, infeasible, lost");
  EXPECT_FALSE(end(trial, "reached")["ok"]);
  EXPECT_EQ(begin({}, 1001)["exit_code"], 4);
}

TEST_F(WorkerTuneOfTwo, WhichGpusHasToBeSaid) {
  ASSERT_TRUE(create()["ok"]);
  EXPECT_EQ(error_of(begin()).find("which GPUs the trial runs on has to be said; there are 0 ("),
            0u);
  ASSERT_TRUE(begin({{"gpus", "0"}})["ok"]);
  EXPECT_EQ(begin({{"gpus", "0,1"}})["exit_code"], 75);
  EXPECT_TRUE(begin({{"gpus", "1"}})["ok"]);
}

// What hands of a knob are asked for.
struct Hands {
  std::vector<std::string> said;
  KnobHands hands() {
    KnobHands out;
    out.begin = [this](const KnobTrial& trial) -> Result<void> {
      said.push_back("begin " + trial.knob + " " + std::to_string(trial.known.size()));
      return {};
    };
    out.update = [this](std::int64_t, WorkUnit unit, double done) {
      said.push_back((unit == WorkUnit::steps ? "steps " : "epochs ") +
                     std::to_string(static_cast<int>(done)));
    };
    out.state = [](std::int64_t) {
      KnobState state{.what = "150 W", .unit_cost = 2, .highest_unit_cost = 3};
      state.readings = {{150, 1, Watts(140)}, {300, 1.1, Watts(250)}};
      return state;
    };
    out.end = [this](std::int64_t) { said.emplace_back("end"); };
    return out;
  }
};

TEST(TuneDesk, AKnobIsHandedOverForTheTimeOfATrial) {
  FakeClock clock;
  ClientDesk clients;
  EnergyDesk energy(clock, clients);
  Hands hands;
  std::string folder = (std::filesystem::temp_directory_path() / "derate-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  {
    TuneDesk desk(clock, clients, energy, {.file = folder + "/tune.db", .knob = hands.hands()});
    const GpuId id{.index = 0, .uuid = "GPU-0", .pci_bus_id = {}, .name = "V100"};
    energy.here({id});
    desk.here({{id, "V100", Watts(300)}});
    const auto ask = [&](const Json& request, std::uint32_t uid) {
      return parse_json(*clients.handle(json_text(request), {7, uid, 1}));
    };
    const Json mine = {{"command", "tune-trial-begin"}, {"model", "lm"}};
    // A user's limit is left alone, unless everybody may have it turned.
    Json trial = ask(mine, 1234);
    EXPECT_EQ(trial["knob"],
              "left alone: user 1234 may have none turned ([tune] users = \"root\" in the "
              "configuration)");
    EXPECT_TRUE(hands.said.empty());
    const auto end = [&](std::uint32_t uid) {
      return ask({{"command", "tune-trial-end"},
                  {"trial", trial["trial"]},
                  {"token", trial["token"]},
                  {"outcome", "missed"}},
                 uid);
    };
    ASSERT_TRUE(end(1234)["ok"]);
    desk.rules({.everyone = true});
    for (const char* known : {"0", "2"}) {  // the second run knows what the first has measured
      hands.said.clear();
      trial = ask(mine, 1234);
      EXPECT_EQ(trial["knob"], "150 W");
      const Json view = ask({{"command", "tune-trial-report"},
                             {"trial", trial["trial"]},
                             {"token", trial["token"]},
                             {"epoch", 2},
                             {"steps", 100}},
                            1234);
      EXPECT_EQ(view["epoch_cost_joules"], 100);  // 50 steps an epoch, 2 J each
      ASSERT_TRUE(end(1234)["ok"]);
      const std::vector<std::string> wanted{std::string("begin power-limit ") + known, "steps 100",
                                            "end"};
      EXPECT_EQ(hands.said, wanted);
    }
  }
  std::filesystem::remove_all(folder);
}

// A file that cannot be written is told of once, and gets what it missed when it can.
TEST(TuneDesk, WhatCouldNotBeWrittenIsWrittenLater) {
  FakeClock clock;
  std::string folder = (std::filesystem::temp_directory_path() / "derate-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string later = folder + "/later", file = later + "/tune.db";
  ASSERT_EQ(::close(::creat(later.c_str(), 0600)), 0);  // no folder yet
  std::vector<std::string> told;
  const auto tell = [&](const std::string& text) { told.push_back(text); };
  const auto names = [&](const char* more) {
    ClientDesk clients;
    EnergyDesk energy(clock, clients);
    TuneDesk desk(clock, clients, energy, {.file = file, .tell = tell});
    for (std::string name = "a"; name <= "c" && *more != 0; ++name[0]) {
      if (name == more) std::filesystem::remove(later);
      const Json spec = {
          {"name", name}, {"batch_sizes", {8}}, {"default", 8}, {"target", 1}, {"max_epochs", 2}};
      const Json request = {{"command", "tune-job-create"}, {"spec", spec}};
      EXPECT_TRUE(parse_json(*clients.handle(json_text(request), {7, 0, 1}))["ok"]);
      for (int round = 0; round < 3; ++round) desk.step();
    }
    std::string out;
    for (const auto& [name, job] : desk.book().jobs()) out += name;
    return out;
  };
  EXPECT_EQ(names("c"), "abc");
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(names(""), "abc");
  std::filesystem::remove_all(folder);
}

// "steps=100", "epoch=1 metric=0.3", "steps=120" on lines of their own.
TEST(TuneDesk, EpochsBetweenStepsAreNoCountOfTheWork) {
  FakeClock clock;
  ClientDesk clients;
  EnergyDesk energy(clock, clients);
  Hands hands;
  TuneDesk desk(clock, clients, energy, {.rules = {.everyone = true}, .knob = hands.hands()});
  const GpuId id{.index = 0, .uuid = "GPU-0", .pci_bus_id = {}, .name = "V100"};
  energy.here({id});
  desk.here({{id, "V100", Watts(300)}});
  const auto ask = [&](const Json& request) {
    return parse_json(*clients.handle(json_text(request), {7, 1234, 1}));
  };
  const Json trial = ask({{"command", "tune-trial-begin"}});
  const Json reports = {{{"epoch", 0.5}},
                        {{"epoch", 1}},
                        {{"steps", 100}},
                        {{"epoch", 2}, {"metric", 0.3}},
                        {{"steps", 120}, {"epoch", 2.5}}};
  for (Json report : reports) {
    report.update(
        {{"command", "tune-trial-report"}, {"trial", trial["trial"]}, {"token", trial["token"]}});
    const Json answer = ask(report);
    ASSERT_TRUE(answer["ok"]) << answer;
  }
  const std::vector<std::string> wanted{"begin power-limit 0", "epochs 0", "epochs 1", "steps 100",
                                        "steps 120"};
  EXPECT_EQ(hands.said, wanted);
}

}  // namespace
}  // namespace derate::cli
