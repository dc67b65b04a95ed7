// Engines that serve language models through the daemon, on simulated GPUs and virtual time: from
// reports of their metrics to the policy on each GPU and what is shown.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "api/requests.h"
#include "house.h"
#include "service/scrape/engine_reading.h"
#include "signal/serving/test_engine.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

ServiceSetting chat() {
  return {.name = "chat",
          .metrics = "http://127.0.0.1:8000/metrics",
          .promise = {"itl p99 <= 50 ms"},
          .process = "vllm*"};
}

Settings with(std::vector<ServiceSetting> services) {
  Settings out;
  out.services = std::move(services);
  return out;
}

struct ServedHouse {
  explicit ServedHouse(int gpus = 2) : house(gpus) {}

  void engine_on(int gpu) {
    (void)house.person(gpu, 10 + gpu, 1000);
    house.trouble(gpu).processes->back().name = "VLLM::EngineCore";
  }
  // With an engine's worker on each of these GPUs.
  void begin(std::vector<ServiceSetting> services, const std::vector<int>& gpus = {0}) {
    for (const int gpu : gpus) engine_on(gpu);
    house.start(with(std::move(services)));
    house.run(3s);
  }
  std::string report_reading(const ServiceReading& reading) {
    return house.ask(request_text(ServiceReport{{reading}}));
  }
  std::string report(const std::string& service = "chat") {
    EngineReading read{.engine = "vLLM", .promise_possible = true, .model = "m"};
    read.state = engine.state;
    return report_reading(reading_of(service, read));
  }
  // Reports four times a second, of an engine that decodes.
  void serve(Duration time, double step_s = 0.01) {
    for (const Instant end = house.clock.now() + time; house.clock.now() < end;) {
      engine.decode(0.25 / step_s, 4, step_s);
      (void)report();
      house.run(250ms);
    }
  }
  ServiceView service(std::size_t at = 0) {
    house.run(1100ms);
    const Json all = parse_json(*read_file(house.folder + "/run/state.json"));
    return answer_of<ServicesAnswer>(Json{{"services", all["services"]}})->services.at(at);
  }
  Json gpu(int at) { return parse_json(*read_file(house.folder + "/run/state.json"))["gpus"][at]; }

  House house;
  TestEngine engine;
};

TEST(Services, ThePromiseGovernsTheGpusOfTheEngine) {
  ServedHouse scene;
  scene.begin({chat()}, {1});
  scene.serve(20s);
  const ServiceView view = scene.service();
  ASSERT_EQ(view.gpus.size(), 1u) << view.trouble;
  EXPECT_EQ(view.gpus[0].index, 1);
  EXPECT_TRUE(view.gpus[0].governed);
  EXPECT_EQ(view.trouble, "");
  EXPECT_EQ(view.engine, "vLLM");
  EXPECT_DOUBLE_EQ(*view.edge_seconds, 0.05);
  EXPECT_EQ(scene.gpu(1)["policy"], "slo");
  EXPECT_EQ(scene.gpu(1)["assigned"]["by"], "service");
  EXPECT_EQ(scene.gpu(1)["assigned"]["who"], "chat");
  EXPECT_FALSE(scene.gpu(0).contains("policy"));
  // Steps of 10 ms leave room: the clock is lower than the highest.
  EXPECT_NE(scene.house.trouble(1).lock, "");
  ASSERT_TRUE(view.figures);
  EXPECT_EQ(view.figures->late_ratio, 0.0);
  EXPECT_GT(*view.figures->joules_per_token, 0);
}

TEST(Services, OldMetricsRaiseTheClockAndAreSaid) {
  ServedHouse scene;
  scene.begin({chat()});
  scene.serve(20s);
  const std::string lowered = scene.house.trouble(0).lock;
  scene.house.run(3s);
  EXPECT_NE(scene.house.trouble(0).lock, lowered);
  const double top = scene.house.sim(0).chip().sm_clocks.back().value();
  EXPECT_TRUE(scene.house.trouble(0).lock.ends_with(fmt::format("..{:.0f}", top)))
      << scene.house.trouble(0).lock;
  EXPECT_NE(scene.service().trouble.find("s old"), std::string::npos);
  EXPECT_TRUE(scene.house.has_logged("there are no new metrics"));
  scene.serve(2s);
  EXPECT_TRUE(scene.house.has_logged("there are metrics again"));
}

TEST(Services, AnEngineThatEndsGivesItsGpuBack) {
  ServedHouse scene;
  scene.begin({chat()});
  scene.serve(10s);
  EXPECT_EQ(scene.gpu(0)["policy"], "slo");
  scene.house.trouble(0).processes->clear();
  scene.house.people.clear();
  scene.house.run(4s);
  EXPECT_FALSE(scene.gpu(0).contains("policy"));
  EXPECT_TRUE(scene.house.left().empty());
  EXPECT_NE(scene.service().trouble.find("no process on a GPU is of it"), std::string::npos);
}

TEST(Services, OneWithoutAPromiseIsShownAlone) {
  ServedHouse scene;
  ServiceSetting shown = chat();
  shown.promise.clear();
  scene.begin({shown});
  scene.serve(3s);
  const ServiceView view = scene.service();
  EXPECT_EQ(view.running, 4.0);
  EXPECT_EQ(view.every_seconds, 1);
  EXPECT_FALSE(view.gpus.at(0).governed);
  EXPECT_FALSE(scene.gpu(0).contains("policy"));
}

TEST(Services, TwoOnAGpuHoldTheHighestClock) {
  ServedHouse scene;
  ServiceSetting other = chat();
  other.name = "other";
  scene.begin({chat(), other});
  scene.serve(10s);
  EXPECT_NE(scene.service(0).trouble.find("chat and other share GPU"), std::string::npos)
      << scene.service(0).trouble;
  const double top = scene.house.sim(0).chip().sm_clocks.back().value();
  EXPECT_TRUE(scene.house.trouble(0).lock.ends_with(fmt::format("..{:.0f}", top)))
      << scene.house.trouble(0).lock;
}

TEST(Services, AReportThatLiesIsSaid) {
  ServedHouse scene;
  scene.begin({chat()});
  scene.serve(2s);
  (void)scene.report_reading({.service = "chat", .engine = "vLLM", .running = -1});
  EXPECT_NE(scene.service().trouble.find("running"), std::string::npos);
  (void)scene.report_reading({.service = "chat", .error = "a\x1b[2Jb"});
  EXPECT_EQ(scene.service().trouble.find('\x1b'), std::string::npos);
  EXPECT_NE(scene.report_reading({.service = "nobody", .error = "x"}).find("\"taken\":0"),
            std::string::npos);
}

TEST(Services, AnOperatorsWordComesFirst) {
  ServedHouse scene;
  scene.begin({chat()});
  scene.serve(3s);
  (void)scene.house.ask(R"({"command": "policy-set", "policy": "max-freq", "gpus": "0"})");
  scene.serve(3s);
  const ServiceView view = scene.service();
  EXPECT_EQ(scene.gpu(0)["policy"], "max-freq");
  EXPECT_FALSE(view.gpus.at(0).governed);
  EXPECT_EQ(view.gpus.at(0).why, "it is governed for command");
  // Without a policy the GPU is the configuration's again, and that has the service.
  (void)scene.house.ask(R"({"command": "policy-set", "gpus": "0"})");
  scene.serve(3s);
  EXPECT_EQ(scene.gpu(0)["policy"], "slo");
  EXPECT_TRUE(scene.service().gpus.at(0).governed);
}

TEST(Services, GpusOfOneEngineAreInStep) {
  ServedHouse scene;
  scene.begin({chat()}, {0, 1});
  scene.serve(20s);
  EXPECT_EQ(scene.gpu(0)["step_group"], scene.gpu(1)["step_group"]);
  EXPECT_TRUE(scene.gpu(0).contains("step_group"));
  EXPECT_EQ(scene.house.trouble(0).lock, scene.house.trouble(1).lock);
}

// A rule for a name that no program has is of no use, and its author should hear of it.
TEST(JobRules, OneThatMatchesNobodyIsNamed) {
  ServedHouse scene;
  Settings settings;
  settings.jobs = {{"serving", "", "vllm*", "inference", {}, "derate.toml:1:1"},
                   {"training", "", "train*", "training", {}, "derate.toml:4:1"}};
  scene.house.start(settings);
  const auto named = [&] {
    scene.house.run(3s);
    const Json all = parse_json(*read_file(scene.house.folder + "/run/state.json"));
    return all.value("rules_of_nobody", Json()).dump();
  };
  EXPECT_EQ(named(), "null");  // nobody works at all
  scene.engine_on(0);
  EXPECT_EQ(named(), R"(["training"])");
  (void)scene.house.person(1, 20, 1000);  // /opt/bin/train
  EXPECT_EQ(named(), "null");
}

TEST(Services, AReloadKeepsWhatHasNotChanged) {
  ServedHouse scene;
  scene.begin({chat()});
  scene.serve(5s);
  Settings settings = with({chat()});
  settings.max_delta = 0.2;
  scene.house.worker->reload(settings);
  EXPECT_GT(scene.service().figures->window_seconds, 4);
  settings.services.clear();
  scene.house.worker->reload(settings);
  scene.house.run(2s);
  EXPECT_FALSE(scene.gpu(0).contains("policy"));
}

}  // namespace
}  // namespace derate::cli
