// What happens to simulated GPUs under a worker, on virtual time, as events: each kind once, and
// none where nothing happens.
#include <gtest/gtest.h>

#include "base/text.h"
#include "house.h"
#include "service/records/event_log.h"
#include "service/records/health.h"
#include "store/history/history_store.h"

namespace derate::cli {
namespace {

using namespace literals;
using namespace std::chrono_literals;

struct EventHouse : House {
  explicit EventHouse(int gpus = 1, const Settings& settings = {}, const char* app = "GeMM")
      : House(gpus) {
    work(0, app);
    start(settings);
    run(2s);
  }
  // Those since the last call, by name, with their GPU where it is one's.
  std::vector<Event> take() {
    const auto page = worker->events().after(seen_, 10'000);
    EXPECT_EQ(page.missed, 0);
    seen_ = page.last;
    return page.events;
  }
  std::string names() {
    std::string out;
    for (const Event& each : take())
      out += std::string(out.empty() ? "" : " ") + info_of(each.kind).name;
    return out;
  }
  Json tell(const Json& request) { return parse_json(ask(json_text(request))); }
  void govern(const char* policy = "assure") {
    EXPECT_EQ(tell({{"command", "policy-set"}, {"policy", policy}, {"gpus", "0"}})["ok"], true);
  }

 private:
  std::int64_t seen_ = 0;
};

std::string field_of(const Event& event, const std::string& name) {
  for (const auto& [key, value] : event.fields)
    if (key == name) return value;
  return "-";
}

Settings governed_by(const char* policy) {
  Settings out;
  out.govern = true;
  out.policy = policy;
  return out;
}

// A card's error is often followed by one of a program, whose work the driver ends.
TEST(DaemonEvents, AnXidOfAProgramDoesNotHideThatOfTheCard) {
  EventHouse house;
  house.take();
  const auto report = [&](XidCount card, XidCount programs) {
    house.trouble(0).card = SharedCard({.xids = XidLog{card, programs}});
    house.run(2s);
  };
  report({}, {});
  EXPECT_EQ(house.names(), "");
  report({1, Xid{48, {}}}, {1, Xid{45, {}}});
  const auto events = house.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::xid);
  EXPECT_EQ(events[0].message, "GPU 0 reports Xid 48 (a memory error that ECC cannot correct)");
  EXPECT_EQ(events[1].kind, EventKind::program_xid);
  EXPECT_EQ(field_of(events[1], "xid"), "45");
  report({1, Xid{48, {}}}, {4, Xid{31, {}}});
  const auto more = house.take();
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(field_of(more[0], "times"), "3");
  report({1, Xid{48, {}}}, {4, Xid{31, {}}});
  EXPECT_EQ(house.names(), "");
  // The GPU was opened anew, and has reported one since.
  report({}, {1, Xid{31, {}}});
  EXPECT_EQ(house.names(), "program_xid");
}

// The service is ready, and its status, health and events report that it governs nothing.
TEST(DaemonEvents, AConfigurationThatGovernsNoGpuIsReported) {
  Settings settings = governed_by("assure");
  settings.gpus = "7";
  EventHouse house(1, settings);
  EXPECT_EQ(house.names(), "started not_governed");
  const std::string said = house.worker->status_sentence();
  EXPECT_EQ(said.find("the configuration says govern, and no GPU is governed: governor.gpus: GPU "
                      "'7' is not here"),
            0u)
      << said;
  const Health ready = readyz(*house.worker->board().latest(), house.clock.now());
  EXPECT_TRUE(ready.good);
  EXPECT_NE(ready.reason.find(said), std::string::npos) << ready.reason;
  settings.gpus = " 0 ,";
  house.worker->reload(settings);
  house.run(2s);
  EXPECT_EQ(house.worker->status_sentence(), "governs 1 of 1 GPUs");
}

TEST(DaemonEvents, AQuietHourMakesNone) {
  EventHouse house(2, governed_by("assure"));
  EXPECT_EQ(house.names(), "started governed governed");
  house.run(1h);
  EXPECT_EQ(house.names(), "");
}

TEST(DaemonEvents, AnObservedMachineIsQuiet) {
  EventHouse house(2);
  EXPECT_EQ(house.names(), "started");
  house.run(10min);
  EXPECT_EQ(house.names(), "");
}

TEST(DaemonEvents, WhoGovernsAndWhoDidBefore) {
  EventHouse house;
  (void)house.take();
  house.govern("efficient-fix");
  house.run(2s);
  auto events = house.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::governed);
  EXPECT_EQ(events[0].gpu, house.uuid_of(0));
  EXPECT_EQ(events[0].gpu_index, 0);
  EXPECT_EQ(events[0].message, "GPU 0 is governed by efficient-fix");
  EXPECT_EQ(field_of(events[0], "from"), "");
  EXPECT_EQ(field_of(events[0], "source"), "command");
  EXPECT_EQ(field_of(events[0], "who"), "uid 0");
  house.govern("max-freq");
  house.run(2s);
  events = house.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::restored);
  EXPECT_EQ(field_of(events[0], "why"), "another policy comes");
  EXPECT_EQ(field_of(events[1], "from"), "efficient-fix");
  EXPECT_EQ(field_of(events[1], "policy"), "max-freq");
  house.govern("max-freq");  // the same again, by the same
  house.run(2s);
  EXPECT_EQ(house.names(), "restored governed");
  (void)house.tell({{"command", "release"}, {"gpus", ""}});
  house.run(2s);
  EXPECT_EQ(house.names(), "restored released");
}

TEST(DaemonEvents, PausedResumedAndStopped) {
  EventHouse house(1, governed_by("efficient-fix"));
  (void)house.take();
  (void)house.tell({{"command", "pause"}});
  house.run(3s);
  const auto events = house.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::restored);
  EXPECT_EQ(events[1].kind, EventKind::paused);
  EXPECT_EQ(field_of(events[1], "who"), "uid 0");
  (void)house.tell({{"command", "resume"}});
  house.run(3s);
  EXPECT_EQ(house.names(), "resumed governed");
  ASSERT_TRUE(house.worker->stop().ok());
  EXPECT_EQ(house.names(), "restored stopped");
  const auto kept = read_events(house.history_file, {});
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->back().kind, EventKind::stopped);
}

TEST(DaemonEvents, AReloadSaysWhatHasChanged) {
  EventHouse house;
  (void)house.take();
  Settings settings;
  house.worker->reload(settings);
  EXPECT_EQ(house.names(), "");
  settings.observer.every_s = 0.5;
  house.worker->reload(settings);
  const auto events = house.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(field_of(events[0], "settings"), "sampling.observe_every_s");
}

TEST(DaemonEvents, AParameterIsNamedByItsKey) {
  EventHouse house;
  (void)house.take();
  Settings settings;
  settings.policy_settings.push_back({"assure", "delta", "0.05", ""});
  house.worker->reload(settings);
  const auto events = house.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(field_of(events[0], "settings"), "policy.assure.delta");
}

// One that is to be governed and cannot be is no GPU that was released.
TEST(DaemonEvents, WhatCannotBeGovernedIsToldWithItsReason) {
  EventHouse house(1, governed_by("efficient-fix"));
  (void)house.take();
  Settings settings = governed_by("efficient-fix");
  settings.lowest_clock_mhz = 1;
  house.worker->reload(settings);
  house.run(2s);
  auto events = house.take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, EventKind::restored);
  EXPECT_EQ(events[1].kind, EventKind::config_changed);
  EXPECT_EQ(events[2].kind, EventKind::not_governed);
  EXPECT_EQ(field_of(events[2], "from"), "efficient-fix");
  EXPECT_NE(field_of(events[2], "why").find("lowest clock"), std::string::npos);
  EXPECT_TRUE(events[2].message.starts_with("GPU 0 is not governed: ")) << events[2].message;
  house.run(10min);
  EXPECT_EQ(house.names(), "");
  house.worker->reload(governed_by("efficient-fix"));
  house.run(2s);
  EXPECT_EQ(house.names(), "config_changed governed");
}

TEST(DaemonEvents, WhatCannotBeGovernedFromTheStartOnIsTold) {
  Settings settings = governed_by("efficient-fix");
  settings.lowest_clock_mhz = 1;
  EventHouse house(1, settings);
  EXPECT_EQ(house.names(), "started not_governed");
  house.run(10min);
  EXPECT_EQ(house.names(), "");
}

// The governor's own rules are taken in by giving back and beginning anew, which is told as such.
TEST(DaemonEvents, OtherRulesGiveBackAndBeginAnew) {
  EventHouse house(1, governed_by("efficient-fix"));
  (void)house.take();
  Settings settings = governed_by("efficient-fix");
  settings.idle.after_s = 7;
  house.worker->reload(settings);
  house.run(2s);
  const auto events = house.take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, EventKind::restored);
  EXPECT_EQ(field_of(events[0], "why"), "the governor's settings change");
  EXPECT_EQ(events[1].kind, EventKind::config_changed);
  EXPECT_EQ(events[2].kind, EventKind::governed);
}

TEST(DaemonEvents, ABoundBreaksThePromiseUntilItGoes) {
  EventHouse house(1, governed_by("assure"));
  house.run(5min);
  (void)house.take();
  const std::string uuid = house.uuid_of(0);
  house.worker->fleet().bounds().put(
      uuid, {.source = "budget", .who = "rack 3", .why = "too hot", .most = 900});
  house.run(5min);
  auto events = house.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::budget);
  EXPECT_EQ(events[0].message, "GPU 0 is bounded to 900 MHz by budget of rack 3");
  EXPECT_EQ(events[1].kind, EventKind::promise_broken);
  EXPECT_EQ(field_of(events[1], "promise"), "0.900");
  EXPECT_LT(field_of(events[1], "performance"), "0.900");
  house.worker->fleet().bounds().withdraw(uuid, "budget");
  house.run(5min);
  EXPECT_EQ(house.names(), "budget promise_kept");
}

// Which bound holds, and which one cannot be kept; once.
TEST(DaemonEvents, BoundsThatContradictEachOtherAreStated) {
  EventHouse house(1, governed_by("assure"));
  house.run(1min);
  (void)house.take();
  auto& bounds = house.worker->fleet().bounds();
  const std::string uuid = house.uuid_of(0);
  bounds.put(uuid, {.source = "budget", .who = "rack 3", .why = "too hot", .most = 1100});
  bounds.put(uuid, {.source = "annotation", .who = "job 17", .why = "", .least = 1300});
  house.run(10s);
  auto events = house.take();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].message,
            "GPU 0 is bounded to 1100 MHz by budget of rack 3, although annotation of job 17 wants "
            "1300 MHz at least");
  EXPECT_EQ(field_of(events[0], "against"), "annotation of job 17");
  EXPECT_LE(house.sim(0).sm_clock(), 1100_MHz);
  bounds.withdraw(uuid, "annotation");
  house.run(10s);
  events = house.take();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].message, "GPU 0 is bounded to 1100 MHz by budget of rack 3");
}

TEST(DaemonEvents, EachChangeByAnotherToolIsTold) {
  EventHouse house(1, governed_by("assure"), "BWtest");
  house.run(5min);
  (void)house.take();
  for (int i = 0; i < 4; ++i) {
    house.sim(0).unlock();
    house.run(14s);
  }
  EXPECT_EQ(house.names(), "drift drift drift drift yielded");
  house.run(5min);
  EXPECT_EQ(house.names(), "");
}

TEST(DaemonEvents, AnotherToolsClockIsLeftAloneFromItsFirstDriftOn) {
  Settings settings = governed_by("assure");
  settings.on_drift = "yield";
  EventHouse house(1, settings, "BWtest");
  house.run(5min);
  (void)house.take();
  house.sim(0).unlock();
  house.run(30s);
  EXPECT_EQ(house.names(), "drift yielded");
  house.run(5min);
  EXPECT_EQ(house.names(), "");
}

TEST(DaemonEvents, AWriteThatFailsIsToldOnceUntilOneSucceeds) {
  EventHouse house;
  (void)house.take();
  house.trouble(0).faults.no_permission = true;
  house.govern("efficient-fix");
  house.run(5min);
  auto events = house.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].kind, EventKind::write_failed);
  EXPECT_NE(field_of(events[1], "error").find("setting clocks needs root"), std::string::npos);
  house.trouble(0).faults.no_permission = false;
  house.run(5min);
  EXPECT_EQ(house.names(), "");
  EXPECT_TRUE(house.sim(0).locked());
}

TEST(DaemonEvents, HeatThatLastsIsToldAndItsEnd) {
  EventHouse house;
  (void)house.take();
  for (int i = 0; i < 100; ++i) {  // a blink is none
    house.trouble(0).throttle = i % 2 == 0 ? throttle::kSwThermalSlowdown : 0;
    house.run(200ms);
  }
  EXPECT_EQ(house.names(), "");
  house.trouble(0).throttle = throttle::kHwThermalSlowdown;
  house.run(5s);
  EXPECT_EQ(house.names(), "thermal");
  house.trouble(0).throttle = 0;
  house.run(5s);
  EXPECT_EQ(house.names(), "");
  house.run(10s);
  EXPECT_EQ(house.names(), "thermal_over");
}

// A board never draws 0 W: power readings are used instead, and the board's energy keeps growing.
TEST(DaemonEvents, AnEnergyCounterThatStandsStill) {
  EventHouse house;
  house.run(5s);
  (void)house.take();
  house.trouble(0).counter = Joules(5000);
  house.run(30s);
  auto events = house.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::meter_doubted);
  EXPECT_EQ(field_of(events[0], "why"), "still");
  house.trouble(0).counter.reset();
  house.run(30s);
  EXPECT_EQ(house.names(), "");  // the counter has not been compared with power yet
  house.run(40s);
  EXPECT_EQ(house.names(), "meter_sound");
}

TEST(DaemonEvents, LostAndFound) {
  EventHouse house(2);
  (void)house.take();
  house.trouble(0).faults.gpu_lost = true;
  house.run(30s);
  auto events = house.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::lost);
  EXPECT_EQ(events[0].gpu, house.uuid_of(0));
  EXPECT_NE(field_of(events[0], "error").find("lost"), std::string::npos);
  house.trouble(0).faults.gpu_lost = false;
  house.run(30s);
  EXPECT_EQ(house.names(), "found");
}

TEST(DaemonEvents, StuckAndFound) {
  EventHouse house;
  (void)house.take();
  house.trouble(0).hangs = true;
  house.run(2min);
  EXPECT_EQ(house.names(), "stuck");
  house.trouble(0).hangs = false;
  house.run(30s);
  EXPECT_EQ(house.names(), "found");
}

// All GPUs at once are the host's fault, and one of them is not.
TEST(DaemonEvents, AHostThatIsLateIsOneEvent) {
  EventHouse house(8, governed_by("assure"));
  (void)house.take();
  for (int i = 0; i < 8; ++i) house.trouble(i).hangs = true;
  house.run(20s);
  EXPECT_EQ(house.names(), "");
  for (int i = 0; i < 7; ++i) house.trouble(i).hangs = false;
  house.run(20s);
  const auto events = house.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::host_late);
  EXPECT_EQ(field_of(events[0], "gpus"), "0-7");
  EXPECT_NEAR(parse_double(field_of(events[0], "seconds")).value_or(0), 20, 1);
  EXPECT_EQ(events[1].kind, EventKind::stuck);
  EXPECT_EQ(events[1].gpu, house.uuid_of(7));
  house.trouble(7).hangs = false;
  house.run(20s);
  EXPECT_EQ(house.names(), "found");
}

TEST(DaemonEvents, ADriverThatHangsAsAWholeIsOneEvent) {
  EventHouse house(4);
  (void)house.take();
  for (int i = 0; i < 4; ++i) house.trouble(i).hangs = true;
  house.run(2min);
  auto events = house.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::stuck);
  EXPECT_EQ(events[0].gpu, "");
  EXPECT_EQ(field_of(events[0], "gpus"), "0-3");
  for (int i = 0; i < 4; ++i) house.trouble(i).hangs = false;
  house.run(20s);
  EXPECT_EQ(house.names(), "found");
}

// A command to eight GPUs is a line of the log.
TEST(DaemonEvents, ACommandToManyIsALineOfTheLog) {
  EventHouse house(8);
  house.logged.clear();
  (void)house.tell({{"command", "policy-set"}, {"policy", "efficient-fix"}, {"gpus", ""}});
  house.run(2s);
  EXPECT_EQ(house.take().size(), 9u);  // and derated had its GPUs
  EXPECT_TRUE(house.has_logged("GPU 0-7 is governed by efficient-fix"));
  const auto lines = std::count_if(house.logged.begin(), house.logged.end(), [](const auto& line) {
    return line.find("governed by") != std::string::npos;
  });
  EXPECT_EQ(lines, 1);
}

// A policy that a command had set ends with a restart: an event says so, until somebody sets or
// releases the GPU.
TEST(DaemonEvents, PoliciesOfCommandsThatEndWithARestart) {
  EventHouse house(3);
  (void)house.tell({{"command", "policy-set"}, {"policy", "efficient-fix"}, {"gpus", "0,1"}});
  house.run(2s);
  const auto lost = [&](int gpu) { return house.worker->board().latest()->gpus[gpu].lost_policy; };
  const auto restart = [&](const Settings& settings = {}) {
    EXPECT_TRUE(house.worker->stop().ok());
    (void)house.take();
    house.start(settings);
    house.run(3s);
    std::vector<Event> out;
    for (Event& each : house.take())
      if (each.kind == EventKind::policies_lost) out.push_back(std::move(each));
    return out;
  };
  auto events = restart();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(field_of(events[0], "policies"), "efficient-fix: 0,1");
  EXPECT_NE(events[0].message.find("efficient-fix on GPU 0,1 (uid 0)"), std::string::npos)
      << events[0].message;
  EXPECT_EQ(lost(0), "efficient-fix");
  EXPECT_EQ(lost(2), "");
  EXPECT_EQ(restart().size(), 1u);  // it is so still
  (void)house.tell({{"command", "release"}, {"gpus", "0"}});
  (void)house.tell({{"command", "policy-set"}, {"policy", "max-freq"}, {"gpus", "1"}});
  house.run(2s);
  EXPECT_EQ(lost(0), "");
  EXPECT_EQ(lost(1), "");
  events = restart();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(field_of(events[0], "policies"), "max-freq: 1");
  // The configuration's policy takes its place: that the command's has gone is said once.
  events = restart(governed_by("efficient-fix"));
  EXPECT_EQ(events.size(), 1u);
  EXPECT_EQ(lost(1), "");
  EXPECT_TRUE(restart(governed_by("efficient-fix")).empty());
}

// Beats name phases; a phase each second is a flood.
TEST(DaemonEvents, PhasesAreThoseThatBeatsName) {
  EventHouse house;
  house.person(0, 10, 1000);
  house.run(3s);
  (void)house.take();
  house.beat(1000, 10, "done=1 phase=warm-up");
  house.run(1s);
  house.beat(1000, 10, "done=2 phase=train");
  house.run(1s);
  auto events = house.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].message, "GPU 0 goes from phase 'warm-up' to 'train'");
  for (int i = 0; i < 100; ++i) {
    house.beat(1000, 10, "done=" + std::to_string(i + 3) + (i % 2 == 0 ? " phase=a" : " phase=b"));
    house.run(1s);
  }
  events = house.take();
  EXPECT_LE(events.size(), 12u);
  ASSERT_GE(events.size(), 5u);
  EXPECT_NE(field_of(events[4], "left_out"), "-");
}

// What another process left is given back before anything else.
TEST(DaemonEvents, WhatWasLeftIsRestoredOrNot) {
  EventHouse house(1, governed_by("efficient-fix"));
  house.run(5s);
  house.sim(0).lock(900_MHz, 900_MHz);
  const auto left = house.left();
  ASSERT_EQ(left.size(), 1u);
  (void)house.take();
  house.worker.reset();
  ASSERT_TRUE(house.journal().write(left[0]).ok());
  house.trouble(0).faults.no_permission = true;
  house.start();
  auto events = house.take();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].kind, EventKind::restore_failed);
  house.trouble(0).faults.no_permission = false;
  house.run(20s);
  events = house.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::restored);
  EXPECT_EQ(field_of(events[0], "why"), "tried again");
}

// The numbers go on where the history's are, and it has what is in memory no more.
TEST(DaemonEvents, AreNumberedOverTheLifeOfTheHistory) {
  EventHouse house(1, governed_by("efficient-fix"));
  const auto before = house.worker->events().newest();
  ASSERT_TRUE(before && *before > 0);
  ASSERT_TRUE(house.worker->stop().ok());
  (void)house.take();
  const auto last = house.worker->events().newest();
  house.start();
  house.run(2s);
  const auto events = house.take();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].id, *last + 1);
  const auto kept = read_events(house.history_file, {});
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  std::int64_t id = 0;
  for (const Event& each : *kept) EXPECT_EQ(each.id, ++id);
  EXPECT_EQ(kept->back(), events.back());
}

}  // namespace
}  // namespace derate::cli
