// Jobs that recur, through the worker, on simulated GPUs and virtual time.
#include <gtest/gtest.h>

#include "base/json.h"
#include "house.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

class WorkerTune : public testing::Test {
 protected:
  explicit WorkerTune(int gpus = 1) : house(gpus) {
    for (int i = 0; i < gpus; ++i) house.work(i, "GeMM");
    settings.tune.lease_s = 30;
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
  EXPECT_TRUE(house.has_logged("trial 1 (lost)"));
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
  EXPECT_EQ(error_of(begin()),
            "there is no job 'bert'; there are none: `derate tune job create` declares one");
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
  EXPECT_EQ(begin({}, 1001)["code"], "no_permission");
}

TEST_F(WorkerTuneOfTwo, WhichGpusHasToBeSaid) {
  ASSERT_TRUE(create()["ok"]);
  EXPECT_EQ(error_of(begin()).find("which GPUs the trial runs on has to be said; there are 0 ("),
            0u);
  ASSERT_TRUE(begin({{"gpus", "0"}})["ok"]);
  EXPECT_EQ(begin({{"gpus", "0,1"}})["exit_code"], 75);
  EXPECT_TRUE(begin({{"gpus", "1"}})["ok"]);
}

}  // namespace
}  // namespace derate::cli
