// Settings that are changed while the daemon runs: by config-set, and in its files.
#include <gtest/gtest.h>

#include "base/json.h"
#include "config/config.h"
#include "config/config_files.h"
#include "house.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

struct ConfigHouse : House {
  ConfigHouse() : House(1) {
    EXPECT_TRUE(write_file_atomically(file, "[governor]\npolicy = \"efficient-fix\"\n").ok());
    config = config_source(file);
    start(*parse_config(*read_file(file), file));
    run(2s);
  }
  Json set(const char* word, bool dry_run = false) {
    return parse_json(
        ask(json_text(Json{{"command", "config-set"}, {"set", {word}}, {"dry_run", dry_run}})));
  }
  std::string file = folder + "/derate.toml";
};

// The GPUs that it concerns are governed otherwise from then on, in the same step.
TEST(ConfigSetting, TakesEffectAtOnce) {
  ConfigHouse house;
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_EQ(house.set("governor.govern=true")["ok"], true);
  EXPECT_TRUE(house.worker->fleet().settings().govern);
  house.run(3s);
  EXPECT_TRUE(house.sim(0).locked());
  EXPECT_EQ(house.set("governor.govern=false")["ok"], true);
  house.run(3s);
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_NE(read_file(house.audit_file())->find("setting governor.govern"), std::string::npos);
}

// Who sets what a GPU cannot do is told so, also before it is done.
TEST(ConfigSetting, SaysWhichGpusAreNotGovernedBecauseOfIt) {
  ConfigHouse house;
  ASSERT_EQ(house.set("governor.govern=true")["ok"], true);
  house.run(3s);
  const auto told = [&](const char* word, bool dry_run) {
    const Json answer = house.set(word, dry_run);
    EXPECT_EQ(answer["ok"], true) << answer;
    return json_text(answer.value("warnings", Json::array()));
  };
  for (const bool dry_run : {true, false}) {
    const std::string clock = told("envelope.lowest_clock_mhz=1", dry_run);
    EXPECT_NE(clock.find("GPU 0 is not governed: "), std::string::npos) << clock;
    EXPECT_NE(clock.find("lowest clock"), std::string::npos) << clock;
    house.run(3s);
    EXPECT_EQ(house.sim(0).locked(), dry_run);
  }
  ASSERT_EQ(told("envelope.lowest_clock_mhz=345", false), "[]");
  house.run(3s);
  EXPECT_TRUE(house.sim(0).locked());
  const std::string gpus = told("governor.gpus=9", true);
  EXPECT_NE(gpus.find("governor.gpus: "), std::string::npos) << gpus;
  // By command it is governed whatever the configuration says.
  ASSERT_EQ(parse_json(house.ask(R"({"command":"policy-set","policy":"max-freq"})"))["ok"], true);
  EXPECT_EQ(told("governor.govern=false", true), "[]");
  const std::string between = told("envelope.highest_clock_mhz=346", true);
  EXPECT_NE(between.find("it is taken as 345 MHz"), std::string::npos) << between;
}

// It stands in the order of other commands: what comes after it finds its settings.
TEST(ConfigSetting, IsDoneInTheOrderOfCommands) {
  ConfigHouse house;
  EXPECT_EQ(house.set("policy.geepafs.delta=0.25")["ok"], true);
  EXPECT_EQ(parse_json(house.ask(R"({"command":"policy-set","policy":"geepafs"})"))["ok"], true);
  EXPECT_EQ(house.worker->fleet().gpus()[0].policy()->policy.params.number("delta"), 0.25);
}

TEST(ConfigSetting, AReloadTakesInWhatFilesSay) {
  ConfigHouse house;
  EXPECT_EQ(*house.worker->reload_files(), "the configuration is reloaded: nothing has changed");
  ASSERT_TRUE(write_file_atomically(house.file, "[governor]\ngovern = true\n").ok());
  EXPECT_EQ(*house.worker->reload_files(),
            "the configuration is reloaded: 2 settings have changed: governor.policy, "
            "governor.govern");
  ASSERT_TRUE(write_file_atomically(house.file, "[governor]\ngovern = 1\n").ok());
  EXPECT_FALSE(house.worker->reload_files().ok());
  EXPECT_TRUE(house.worker->fleet().settings().govern);
}

// Who is no admin does not reach it.
TEST(ConfigSetting, IsNoUsers) {
  ConfigHouse house;
  const Json answer =
      parse_json(house.call(1, R"({"command":"config-set","set":["governor.govern=true"]})"));
  EXPECT_EQ(answer["code"], "no_permission");
  EXPECT_EQ(parse_json(house.ask(R"({"command":"config-diff"})"))["changes"], Json::array());
}

}  // namespace
}  // namespace derate::cli
