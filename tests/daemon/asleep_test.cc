// A laptop's GPU that nobody uses is left asleep: no call of the driver wakes it.
#include <gtest/gtest.h>

#include "base/json.h"
#include "house.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

class Asleep : public testing::Test {
 protected:
  Asleep() {
    house.trouble(0).pci_bus_id = "00000000:01:00.0";
    house.trouble(0).processes.emplace();
    house.sleep.read = [this](const std::vector<std::string>& bus_ids, AskDriver) {
      EXPECT_EQ(bus_ids, std::vector<std::string>{"00000000:01:00.0"});
      return std::vector<RuntimePower>{power};
    };
    house.sleep.where = BackgroundWorker::Where::at_once;
  }
  void fall_asleep() {
    house.run(30s);
    ASSERT_EQ(house.trouble(0).open, 0);
    power = RuntimePower::off;
    house.run(2s);
  }
  Json state() const { return parse_json(*read_file(house.folder + "/run/state.json")); }
  bool is_asleep() const { return true_at(state(), "asleep"); }

  House house{1, "RTX4070-Laptop"};
  RuntimePower power = RuntimePower::on;
};

TEST_F(Asleep, NoCallIsMadeInAnHourAndOneOpeningAfterAWake) {
  house.start();
  house.run(15s);
  EXPECT_EQ(house.trouble(0).open, 1);
  EXPECT_FALSE(is_asleep());
  fall_asleep();
  EXPECT_TRUE(is_asleep());
  const int calls = house.trouble(0).calls;
  house.run(1h);
  EXPECT_EQ(house.trouble(0).calls, calls);
  EXPECT_EQ(house.trouble(0).opened, 1);
  EXPECT_TRUE(is_asleep());

  power = RuntimePower::on;
  house.person(0, 200, 1000);
  house.work(0, "GeMM");
  house.run(3s);
  EXPECT_EQ(house.trouble(0).open, 1);
  EXPECT_FALSE(is_asleep());
  house.run(2min);
  EXPECT_EQ(house.trouble(0).opened, 2);
}

// It is opened for it, and the command is obeyed then.
TEST_F(Asleep, ACommandWakesIt) {
  house.start();
  fall_asleep();
  house.opens_later = 3;
  EXPECT_FALSE(
      house.worker->operators().handle(R"({"command":"policy-set","policy":"assure"})", {1, 0, 1}));
  house.run(5s);
  const auto late = house.worker->operators().take_late();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_NE(late[0].second.find("assure"), std::string::npos) << late[0].second;
  EXPECT_EQ(house.trouble(0).open, 1);
}

TEST_F(Asleep, AWindowOfEnergyKeepsItAwake) {
  house.start();
  house.run(1s);
  (void)house.call(1, R"({"command":"window-begin","name":"epoch"})");
  house.run(5min);
  EXPECT_EQ(house.trouble(0).opened, 1);
  EXPECT_EQ(house.trouble(0).open, 1);
}

// It is given back first, and governed again after it.
TEST_F(Asleep, AGovernedGpuIsGivenBackBeforeItSleeps) {
  Settings settings;
  settings.govern = true;
  house.start(settings);
  house.work(0, "GeMM");
  house.person(0, 200, 1000);
  house.run(2min);
  EXPECT_FALSE(house.left().empty());
  house.sim(0).stop();
  house.trouble(0).processes->clear();
  fall_asleep();
  EXPECT_TRUE(is_asleep());
  EXPECT_TRUE(house.left().empty());
  EXPECT_FALSE(house.sim(0).locked());
  power = RuntimePower::on;
  house.run(5s);
  EXPECT_EQ(first_gpu(house)["policy"], "assure");
}

// Another program, or a display, keeps it up: closing it again and again would only lose readings.
TEST_F(Asleep, AGpuThatDoesNotFallAsleepIsReadOn) {
  house.start();
  house.run(40min);  // closed after 20 s, 10 and 31 minutes
  EXPECT_GE(house.trouble(0).opened, 3);
  EXPECT_LE(house.trouble(0).opened, 4);
  EXPECT_EQ(house.trouble(0).open, 1);
}

TEST_F(Asleep, NothingIsClosedOnWhatIsNotUnderstood) {
  for (const RuntimePower not_known : {RuntimePower::unknown, RuntimePower::fixed}) {
    power = not_known;
    house.start();
    house.run(3min);
    EXPECT_EQ(house.trouble(0).open, 1);
  }
  EXPECT_EQ(house.trouble(0).opened, 2);  // by two starts
}

// Files that cannot be read any more are no reason to leave a GPU closed.
TEST_F(Asleep, WhatIsNotUnderstoodLaterOpensIt) {
  house.start();
  fall_asleep();
  power = RuntimePower::unknown;
  house.run(3s);
  EXPECT_EQ(house.trouble(0).open, 1);
}

TEST_F(Asleep, AGpuThatSleepsAtTheStartIsNotOpened) {
  power = RuntimePower::off;
  house.bus_ids = {"00000000:01:00.0"};
  house.start();
  EXPECT_TRUE(house.worker->running());
  EXPECT_EQ(house.worker->status_sentence(), "the GPUs are asleep");
  house.run(1h);
  EXPECT_EQ(house.trouble(0).opened, 0);
  EXPECT_TRUE(is_asleep());
  power = RuntimePower::on;
  house.run(3s);
  EXPECT_EQ(house.trouble(0).opened, 1);
}

TEST_F(Asleep, TheSettingSwitchesItOff) {
  Settings settings;
  settings.observer.close_idle_after_s = 0;
  house.start(settings);
  house.run(3min);
  EXPECT_EQ(house.trouble(0).opened, 1);
  EXPECT_EQ(house.trouble(0).open, 1);
}

TEST_F(Asleep, AReloadThatSwitchesItOffWakesIt) {
  house.start();
  fall_asleep();
  Settings settings;
  settings.observer.close_idle_after_s = 0;
  house.worker->reload(settings);
  house.run(3s);
  EXPECT_EQ(house.trouble(0).open, 1);
}

TEST_F(Asleep, APauseAndAResumeEndIt) {
  house.start();
  fall_asleep();
  EXPECT_FALSE(house.worker->operators().handle(R"({"command":"pause"})", {1, 0, 1}));
  house.run(3s);
  EXPECT_TRUE(true_at(state(), "paused"));
  EXPECT_FALSE(is_asleep());
  EXPECT_EQ(house.trouble(0).open, 0);
  EXPECT_FALSE(house.worker->operators().handle(R"({"command":"resume"})", {1, 0, 1}));
  house.run(3s);
  EXPECT_EQ(house.trouble(0).open, 1);
}

// After a suspend of the machine the driver may need a while. The loop goes on, and requests are
// answered, also where the GPU slept from the start.
TEST_F(Asleep, AnOpeningThatFailsIsTriedAgain) {
  for (const bool from_the_start : {false, true}) {
    power = from_the_start ? RuntimePower::off : RuntimePower::on;
    if (from_the_start) house.bus_ids = {"00000000:01:00.0"};
    house.start();
    if (!from_the_start) fall_asleep();
    const int opened = house.trouble(0).opened;
    house.opening_fails = true;
    power = RuntimePower::on;
    house.run(5s);
    EXPECT_TRUE(house.has_logged("cannot open the GPUs: the driver is not ready"));
    EXPECT_FALSE(house.worker->operators().handle(R"({"command":"pause"})", {1, 0, 1}));
    house.run(15s);
    EXPECT_EQ(house.worker->operators().take_late().size(), 1u);
    EXPECT_FALSE(house.worker->operators().handle(R"({"command":"resume"})", {1, 0, 1}));
    house.run(40s);
    EXPECT_EQ(house.trouble(0).opened, opened);
    house.opening_fails = false;
    house.work(0, "GeMM");
    house.run(1min);
    EXPECT_EQ(house.trouble(0).opened, opened + 1);
    EXPECT_EQ(house.trouble(0).open, 1);
    house.sim(0).stop();
  }
}

// Requests by programs are answered at once, and wake it.
TEST_F(Asleep, AProgramsRequestWakesIt) {
  house.start();
  fall_asleep();
  EXPECT_NE(house.call(1, R"({"command":"window-begin","name":"epoch"})").find("no GPU is open"),
            std::string::npos);
  house.run(3s);
  EXPECT_EQ(house.trouble(0).open, 1);
  EXPECT_TRUE(
      true_at(parse_json(house.call(1, R"({"command":"window-begin","name":"epoch"})")), "ok"));
}

// However often somebody looks when the next round is due, it does not move away.
TEST_F(Asleep, TheNextRoundComes) {
  house.start();
  fall_asleep();
  const Instant due = house.worker->next_due();
  house.clock.advance(500ms);
  EXPECT_EQ(house.worker->next_due(), due);
}

// The journal has what is to be restored first.
TEST_F(Asleep, AGpuWithSomethingLeftIsOpenedAtTheStart) {
  JournalEntry entry;
  entry.domain = gpu_domain(house.uuid_of(0));
  entry.life = house.life;
  entry.owner = "derated";
  entry.pid = 7;
  entry.knobs = {{kClockLock, {{}, true}}};
  ASSERT_TRUE(house.journal().write(entry).ok());
  house.sim(0).lock(Megahertz(900), Megahertz(900));
  power = RuntimePower::off;
  house.bus_ids = {"00000000:01:00.0"};
  house.start();
  EXPECT_FALSE(house.sim(0).locked());
  EXPECT_TRUE(house.left().empty());
}

}  // namespace
}  // namespace derate::cli
