#include "govern/heartbeat_registry.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kAnn = 1000, kBob = 1001;

ProcessFacts process(std::int64_t pid, std::uint32_t uid = kAnn) {
  ProcessFacts out;
  out.pid = pid;
  out.uid = uid;
  out.started = 5;
  out.group = out.session = pid;
  out.name = "train";
  return out;
}

GpuProcessTenant tenant(const ProcessFacts& of, double share = 0) {
  GpuProcessTenant out{of, {}};
  if (share > 0) out.sm_utilisation = Fraction(share);
  return out;
}

struct Heartbeats {
  HeartbeatRegistry registry;
  std::vector<GpuTenants> gpus = std::vector<GpuTenants>(2);
  PromiseRules rules;
  Instant now{};

  Heartbeats() {
    for (int i = 0; i < 2; ++i) gpus[static_cast<std::size_t>(i)].id = {i, i ? "GPU-b" : "GPU-a"};
  }
  void say(const ProcessFacts& who, const char* text) {
    registry.add(*parse_beat(text), {who.uid.value_or(0), who.pid}, who, now);
  }
  // One whose process is gone when its beat is heard.
  void say_and_go(std::uint32_t uid, std::int64_t pid, const char* text) {
    registry.add(*parse_beat(text), {uid, pid}, {}, now);
  }
  GpuWork at(std::size_t gpu) { return registry.status(gpus, rules, now)[gpu]; }
  std::optional<double> done(std::size_t gpu) {
    const auto progress = at(gpu).status.progress;
    return progress ? std::optional(progress->done) : std::nullopt;
  }
};

using Announced = HeartbeatRegistry::Announced;

TEST(HeartbeatRegistry, WhatAnEnvironmentSaysIsAnnouncedByItsOwnUser) {
  Heartbeats beats;
  beats.say(process(17), "delta=0.02 job=7");
  EXPECT_EQ(beats.registry.announced(process(17)), (Announced{"0.02", "7"}));
  EXPECT_EQ(beats.registry.announced(process(18)), Announced{});
  ProcessFacts later = process(17);  // the number, given out again
  later.started = 6;
  EXPECT_EQ(beats.registry.announced(later), Announced{});
  // Bob's beats, of their own process and of Ann's.
  beats.registry.add(*parse_beat("delta=0.5 pid=17"), {kBob, 99}, process(17), beats.now);
  beats.say(process(99, kBob), "delta=0.4");
  EXPECT_EQ(beats.registry.announced(process(17)).asked, "0.02");
  beats.registry.add(*parse_beat("delta=inference pid=20"), {0, 1}, process(20), beats.now);
  EXPECT_EQ(beats.registry.announced(process(20)).asked, "inference");
  beats.say_and_go(kAnn, 21, "delta=0.1");
  EXPECT_EQ(beats.registry.announced(process(21)), Announced{});
  EXPECT_EQ(beats.registry.sources(), 0u);  // it says nothing of how its work goes
}

TEST(HeartbeatRegistry, AnAnnouncementIsForThoseBelowAndAboveInTheSession) {
  Heartbeats beats;
  ProcessFacts shell = process(9), work = process(17), deeper = process(18);
  work.session = deeper.session = 9;
  work.ancestors = {9};
  deeper.ancestors = {17, 9};
  beats.say(shell, "delta=0.1 job=3");
  EXPECT_EQ(beats.registry.announced(work), (Announced{"0.1", "3"}));
  EXPECT_EQ(beats.registry.announced(deeper), (Announced{"0.1", "3"}));
  beats.say(work, "delta=0.02");  // the nearest
  EXPECT_EQ(beats.registry.announced(deeper), (Announced{"0.02", "3"}));
  EXPECT_EQ(beats.registry.announced(shell).asked, "0.1");
  ProcessFacts other = deeper;
  other.uid = kBob;  // by sudo, in Ann's session
  EXPECT_EQ(beats.registry.announced(other), Announced{});
  other = deeper;
  other.session = 18;
  EXPECT_EQ(beats.registry.announced(other), Announced{});
  Heartbeats second;
  second.say(deeper, "delta=0.3");  // a child that beats for what started it
  EXPECT_EQ(second.registry.announced(work).asked, "0.3");
}

TEST(HeartbeatRegistry, AnnouncementsOutliveSilenceAndNobodyCrowdsOutOthers) {
  Heartbeats beats;
  beats.say(process(17), "job=7");
  for (std::int64_t pid = 100; pid < 1000; ++pid) beats.say(process(pid, kBob), "job=8");
  beats.now += 24h;
  (void)beats.at(0);
  EXPECT_EQ(beats.registry.announced(process(17)).job, "7");
  EXPECT_EQ(beats.registry.announced(process(999, kBob)).job, "8");
  EXPECT_EQ(beats.registry.announced(process(100, kBob)).job, "");  // 64 of a user
}

TEST(HeartbeatRegistry, WhatAProcessReportedEndsWithIt) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17)), tenant(process(18))};
  beats.say(process(17), "done=5 job=7");
  beats.say(process(18), "done=6 job=8");
  ProcessFacts next = process(17);
  next.started = 6;
  beats.registry.forget(next);  // another process with the same PID
  EXPECT_EQ(beats.registry.sources(), 2u);
  beats.registry.forget(process(17));
  EXPECT_EQ(beats.registry.sources(), 1u);
  EXPECT_EQ(beats.registry.announced(process(17)), Announced{});
  EXPECT_EQ(beats.registry.announced(process(18)).job, "8");
}

// The PID of a parent can be reused as well.
TEST(HeartbeatRegistry, AProcessIsAboveAnotherByItsStartToo) {
  Heartbeats beats;
  ProcessFacts shell = process(9), work = process(17);
  work.session = 9;
  work.ancestors = {{9, 4}};  // the shell that started it, which has ended
  beats.say(shell, "delta=0.1 job=3");
  EXPECT_EQ(beats.registry.announced(work), Announced{});
  work.ancestors = {{9, 5}};
  EXPECT_EQ(beats.registry.announced(work), (Announced{"0.1", "3"}));
}

// A user with work is heard, however many ids send, with or without work.
TEST(HeartbeatRegistry, ACrowdWithoutWorkPushesNobodyOutWhoWorks) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  (void)beats.at(0);
  const auto crowd = [&](std::uint32_t from) {
    for (std::uint32_t i = 0; i < 300; ++i) beats.say(process(1000 + i, from + i), "done=1 job=1");
  };
  crowd(5000);
  beats.say(process(17), "done=5 job=7");
  beats.now += 1s;
  crowd(6000);
  EXPECT_EQ(beats.done(0), 5);
  EXPECT_EQ(beats.registry.announced(process(17)).job, "7");
  EXPECT_LE(beats.registry.sources(), HeartbeatRegistry::kMostSources);
}

TEST(HeartbeatRegistry, SubordinateIdsShareWhatTheirOwnerMaySend) {
  HeartbeatRegistry registry;
  registry.people([](std::uint32_t uid) { return uid >= 100000 ? kAnn : uid; });
  int admitted = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) admitted += registry.admit(100000 + i, {}) ? 1 : 0;
  EXPECT_EQ(admitted, HeartbeatRegistry::kAtOnce);
  EXPECT_FALSE(registry.admit(kAnn, {}));
  EXPECT_TRUE(registry.admit(kBob, {}));
}

TEST(HeartbeatRegistry, AProcessSpeaksOfTheGpusThatItWorksOn) {
  Heartbeats beats;
  beats.gpus[1].tenants = {tenant(process(17))};
  beats.say(process(17), "done=5 phase=warm-up");
  EXPECT_EQ(beats.done(0), std::nullopt);
  EXPECT_EQ(beats.done(1), 5);
  EXPECT_EQ(beats.at(1).status.phase, "warm-up");
  EXPECT_EQ(beats.at(1).status.name, "train");
  beats.gpus[0].tenants = {tenant(process(17))};
  EXPECT_EQ(beats.done(0), 5);
}

TEST(HeartbeatRegistry, AForeignUserIsNotBelieved) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say(process(99, kBob), "done=5 max_loss=0.01");
  beats.say(process(99, kBob), "done=5 gpu=0 max_loss=0.01");
  beats.say(process(17, kBob), "done=5");  // a number that was Ann's
  // Bob's process claims to be Ann's; the kernel says whose it is.
  beats.registry.add(*parse_beat("done=5 pid=17"), {kBob, 99}, process(17), beats.now);
  EXPECT_EQ(beats.done(0), std::nullopt);
  EXPECT_EQ(throughput_promise(beats.at(0).status), std::nullopt);
  EXPECT_EQ(beats.registry.counts().unplaced, 3u);
  ProcessFacts hidden = process(17);
  hidden.uid.reset();
  beats.gpus[0].tenants = {tenant(hidden)};
  EXPECT_EQ(beats.done(0), std::nullopt);
}

TEST(HeartbeatRegistry, RootSpeaksOfAnyGpuThatItNames) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say(process(9, 0), "done=5");
  EXPECT_EQ(beats.done(0), std::nullopt);
  beats.say(process(9, 0), "done=6 gpu=GPU-a max_loss=0.02");
  beats.say(process(9, 0), "done=7 gpu=1 max_loss=0.02");
  EXPECT_EQ(beats.done(0), 6);
  EXPECT_EQ(beats.done(1), 7);
  EXPECT_EQ(max_loss(*throughput_promise(beats.at(0).status)), Fraction(0.02));
  EXPECT_EQ(max_loss(*throughput_promise(beats.at(1).status)), Fraction(0.02));
}

// A job sees only the node's GPU 1, as its GPU 0: its count does not belong to the job on the
// node's GPU 0.
TEST(HeartbeatRegistry, ANumberOfAnotherViewIsTheGpuWhereItsSenderWorks) {
  for (const std::uint32_t user : {kAnn, 0u}) {
    Heartbeats beats;
    beats.gpus[0].tenants = {tenant(process(16, user))};
    beats.gpus[1].tenants = {tenant(process(17, user))};
    beats.say(process(17, user), "done=5 gpu=0");
    EXPECT_EQ(beats.done(0), std::nullopt);
    EXPECT_EQ(beats.done(1), 5);
  }
  // A sender on several GPUs, none with that number: its GPU is not known.
  Heartbeats several;
  several.gpus.resize(3);
  several.gpus[2].id = {2, "GPU-c"};
  several.gpus[0].tenants = {tenant(process(16))};
  several.gpus[1].tenants = several.gpus[2].tenants = {tenant(process(17))};
  several.say(process(17), "done=5 gpu=0");
  for (std::size_t gpu = 0; gpu < 3; ++gpu) EXPECT_EQ(several.done(gpu), std::nullopt) << gpu;
  several.say(process(17), "done=7 gpu=2");
  EXPECT_EQ(several.done(2), 7);
  EXPECT_EQ(several.done(1), std::nullopt);
}

TEST(HeartbeatRegistry, KinAreBelievedNearestFirst) {
  ProcessFacts work = process(20), shell = process(10), pipe = process(21);
  work.session = shell.session = pipe.session = 10;
  work.ancestors = pipe.ancestors = {10};
  work.group = pipe.group = 20;
  ProcessFacts other = process(30);
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(work)};
  beats.gpus[1].tenants = {tenant(other)};
  beats.say(shell, "done=1");  // the parent, for one-shots
  EXPECT_EQ(beats.done(0), 1);
  EXPECT_EQ(beats.done(1), std::nullopt);
  beats.say(pipe, "done=2");  // beside it in a pipe: its parent stands nearer
  EXPECT_EQ(beats.done(0), 1);
  beats.say(work, "done=3");
  EXPECT_EQ(beats.done(0), 3);
  // Another session is nobody's kin, and the user has two GPUs.
  ProcessFacts elsewhere = process(40);
  elsewhere.ancestors = {};
  Heartbeats second;
  second.gpus = beats.gpus;
  second.say(elsewhere, "done=9");
  EXPECT_EQ(second.done(0), std::nullopt);
  second.gpus[1].tenants.clear();
  EXPECT_EQ(second.done(0), 9);
}

TEST(HeartbeatRegistry, WhoIsGoneAlreadySpeaksOfTheUsersOnlyGpu) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say_and_go(kAnn, 50, "done=1");
  const auto first = beats.at(0).status.progress;
  beats.say_and_go(kAnn, 51, "done=2");
  const auto second = beats.at(0).status.progress;
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->source, second->source);
  beats.gpus[1].tenants = {tenant(process(18))};
  EXPECT_EQ(beats.done(0), std::nullopt);
}

TEST(HeartbeatRegistry, ACountBegunAnewIsAnotherSource) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say(process(17), "done=5");
  const auto first = beats.at(0).status.progress->run;
  beats.say(process(17), "done=6");
  EXPECT_EQ(beats.at(0).status.progress->run, first);
  beats.say(process(17), "done=2");
  const auto second = beats.at(0).status.progress->run;
  EXPECT_NE(second, first);
  // The number was given to another process.
  ProcessFacts later = process(17);
  later.started = 99;
  beats.gpus[0].tenants = {tenant(later)};
  beats.say(later, "done=3");
  EXPECT_NE(beats.at(0).status.progress->run, second);
  EXPECT_EQ(beats.registry.sources(), 1u);
}

TEST(HeartbeatRegistry, WhoFallsSilentIsForgottenButItsPromiseIsKept) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say(process(17), "done=5 max_loss=0.02 phase=x");
  beats.now += 10s;
  EXPECT_EQ(beats.done(0), 5);
  beats.now += 1s;
  EXPECT_EQ(beats.done(0), std::nullopt);
  EXPECT_EQ(beats.at(0).status.phase, "");
  EXPECT_EQ(max_loss(*throughput_promise(beats.at(0).status)), Fraction(0.02));
  // ... of its process, not of the next.
  ProcessFacts next = process(18);
  beats.gpus[0].tenants = {tenant(next)};
  EXPECT_EQ(throughput_promise(beats.at(0).status), std::nullopt);
  EXPECT_EQ(beats.registry.sources(), 0u);
}

TEST(HeartbeatRegistry, SlowCountsAreGivenTheirTime) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say(process(17), "done=1");
  beats.now += 60s;
  beats.say(process(17), "done=2");
  beats.now += 299s;
  beats.say(process(17), "phase=other");  // says nothing of how far it is
  EXPECT_EQ(beats.done(0), 2);
  beats.now += 2s;
  EXPECT_EQ(beats.done(0), std::nullopt);
}

TEST(HeartbeatRegistry, SeveralCountsAreNotAdded) {
  Heartbeats beats;
  const ProcessFacts a = process(17), b = process(18);
  beats.gpus[0].tenants = {tenant(a, 0.6), tenant(b, 0.4)};
  beats.say(a, "done=5 phase=x max_loss=0.2");
  beats.say(b, "done=7 phase=y max_loss=0.1");
  EXPECT_EQ(beats.done(0), 5);
  EXPECT_EQ(max_loss(*throughput_promise(beats.at(0).status)), Fraction(0.1));
  beats.gpus[0].tenants = {tenant(a, 0.52), tenant(b, 0.48)};
  EXPECT_EQ(beats.done(0), std::nullopt);
  EXPECT_EQ(beats.at(0).status.phase, "x+y");
  beats.gpus[0].tenants = {tenant(a), tenant(b)};
  EXPECT_EQ(beats.done(0), std::nullopt);
}

// Otherwise a small process could have a large neighbour slowed down by what it says.
TEST(HeartbeatRegistry, ACountBesideAnotherUsersWorkMustBeOfTheLargest) {
  Heartbeats beats;
  const ProcessFacts mine = process(17, kAnn), theirs = process(18, kBob);
  beats.say(mine, "done=5");
  beats.gpus[0].tenants = {tenant(mine, 0.1), tenant(theirs, 0.9)};
  EXPECT_EQ(beats.done(0), std::nullopt);
  beats.gpus[0].tenants = {tenant(mine, 0.9), tenant(theirs)};
  EXPECT_EQ(beats.done(0), 5);
}

TEST(HeartbeatRegistry, TenantsWithoutAPromiseHaveThePolicysOwn) {
  Heartbeats beats;
  beats.gpus[0].policy_delta = Fraction(0.1);
  beats.gpus[0].tenants = {tenant(process(17))};
  EXPECT_EQ(throughput_promise(beats.at(0).status), std::nullopt);
  beats.say(process(17), "max_loss=0.25");
  EXPECT_EQ(max_loss(*throughput_promise(beats.at(0).status)), Fraction(0.25));
  EXPECT_EQ(beats.at(0).promise_from, "beat");
  beats.gpus[0].tenants.push_back(tenant(process(18, kBob)));
  EXPECT_EQ(max_loss(*throughput_promise(beats.at(0).status)), Fraction(0.1));
  EXPECT_EQ(beats.at(0).promise_from, "policy");
}

TEST(HeartbeatRegistry, OneUserCannotCrowdOutTheOthers) {
  Heartbeats beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say(process(17), "done=5");
  for (std::int64_t pid = 100; pid < 1000; ++pid) beats.say(process(pid, kBob), "done=1");
  EXPECT_LE(beats.registry.sources(), HeartbeatRegistry::kMostOfAUser + 1);
  EXPECT_EQ(beats.done(0), 5);
  int admitted = 0;
  for (int i = 0; i < 10000; ++i) admitted += beats.registry.admit(kBob, beats.now) ? 1 : 0;
  EXPECT_EQ(admitted, HeartbeatRegistry::kAtOnce);
  EXPECT_TRUE(beats.registry.admit(kAnn, beats.now));
  EXPECT_TRUE(beats.registry.admit(kBob, beats.now + 1s));
  EXPECT_GT(beats.registry.counts().too_many, 9000u);
}

// --- whatever is said by whom --------------------------------------------------------------------

RC_GTEST_PROP(HeartbeatRegistryProperty, NothingLooserThanMaxDeltaAndNoGrowth, ()) {
  Heartbeats beats;
  beats.rules.max_delta = Fraction(*rc::gen::inRange(0, 51) / 100.0);
  const auto any_process = [] {
    ProcessFacts out = process(*rc::gen::inRange(1, 12), *rc::gen::element(0u, kAnn, kBob));
    out.session = out.group = *rc::gen::inRange(1, 3);
    out.ancestors = {*rc::gen::inRange(1, 12)};
    out.asked = *rc::gen::element(std::string(), std::string("batch"), std::string("0.5"));
    return out;
  };
  const char* texts[] = {"done=3", "done=1 max_loss=0.5", "max_loss=0.01 gpu=0", "phase=x gpu=0,1",
                         "done=2 gpu=7"};
  for (int step = *rc::gen::inRange(1, 60); step > 0; --step) {
    beats.now += std::chrono::seconds(*rc::gen::inRange(0, 8));
    beats.say(any_process(), texts[*rc::gen::inRange(0, 5)]);
    for (GpuTenants& gpu : beats.gpus) {
      gpu.tenants.clear();
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i)
        gpu.tenants.push_back(tenant(any_process(), *rc::gen::inRange(0, 10) / 10.0));
    }
    const auto work = beats.registry.status(beats.gpus, beats.rules, beats.now);
    for (GpuTenants& gpu : beats.gpus) std::reverse(gpu.tenants.begin(), gpu.tenants.end());
    const auto again = beats.registry.status(beats.gpus, beats.rules, beats.now);
    for (std::size_t i = 0; i < work.size(); ++i) {
      for (const Promise& one : work[i].status.promises)
        RC_ASSERT(max_loss(one) <= beats.rules.max_delta);
      RC_ASSERT(work[i].status == again[i].status);
      RC_ASSERT(work[i].promise_from == again[i].promise_from);
      if (work[i].status.progress) RC_ASSERT(beats.now - work[i].status.progress->time <= 600s);
    }
  }
  beats.gpus[0].tenants.clear();
  beats.gpus[1].tenants.clear();
  beats.now += 1h;
  (void)beats.registry.status(beats.gpus, beats.rules, beats.now);
  RC_ASSERT(beats.registry.sources() == 0u);
}

// What `who` launches on a GPU, as the tracker counts it.
struct Launches : Heartbeats {
  void launch(const ProcessFacts& who, const char* gpu, std::optional<LaunchState> state) {
    registry.add_launches({.pid = who.pid,
                           .uid = who.uid.value_or(0),
                           .gpu = gpu,
                           .time = now,
                           .state = std::move(state)},
                          who);
  }
  void launch(const ProcessFacts& who, const char* gpu, double done, int phase = 1) {
    launch(who, gpu, LaunchState{.phase = phase, .done = done, .unsteadiness = 0.004});
  }
};

TEST(HeartbeatRegistry, LaunchesOfWhoHadTheNumberAreNotThoseOfWhoHasIt) {
  Launches beats;
  beats.gpus[1].tenants = {tenant(process(17))};
  const LaunchState state{.phase = 1, .done = 500, .unsteadiness = 0.004};
  beats.registry.add_launches({.pid = 17,
                               .uid = kAnn,
                               .started = 4,  // the process that has the PID now started at 5
                               .gpu = "GPU-b",
                               .time = beats.now,
                               .state = state},
                              process(17));
  EXPECT_FALSE(beats.done(1));
}

TEST(HeartbeatRegistry, LaunchesCountWorkThatSaysNothingOfItself) {
  Launches beats;
  beats.gpus[1].tenants = {tenant(process(17))};
  beats.launch(process(17), "GPU-b", 500);
  const auto progress = beats.at(1).status.progress;
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->done, 500);
  EXPECT_EQ(progress->rate_uncertainty, 0.004);
  EXPECT_FALSE(beats.done(0));
  beats.launch(process(17), "GPU-b", std::nullopt);
  EXPECT_FALSE(beats.done(1));
}

TEST(HeartbeatRegistry, WhatAProcessSaysComesBeforeWhatItLaunches) {
  Launches beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.launch(process(17), "GPU-a", 500);
  beats.say(process(17), "done=3 phase=eval");
  beats.now += 1s;
  beats.launch(process(17), "GPU-a", 600, 2);
  EXPECT_EQ(beats.done(0), 3);
  EXPECT_EQ(beats.at(0).status.phase, "eval");
  beats.now += 9500ms;  // it has fallen silent, and launches
  beats.launch(process(17), "GPU-a", 700, 2);
  EXPECT_EQ(beats.done(0), 700);
}

TEST(HeartbeatRegistry, APhaseThatAnApplicationNamesIsKeptBesideThatOfItsLaunches) {
  Launches beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.say(process(17), "phase=eval");
  beats.launch(process(17), "GPU-a", 600, 2);
  EXPECT_EQ(beats.done(0), 600);
  EXPECT_EQ(beats.at(0).status.phase, "eval+kernels 2");
}

TEST(HeartbeatRegistry, AnotherPhaseOfLaunchesIsAnotherUnit) {
  Launches beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  beats.launch(process(17), "GPU-a", 500);
  const auto first = beats.at(0).status.progress->run;
  beats.launch(process(17), "GPU-a", 600);
  EXPECT_EQ(beats.at(0).status.progress->run, first);
  beats.launch(process(17), "GPU-a", 9000, 2);
  EXPECT_NE(beats.at(0).status.progress->run, first);
}

// Launches of some windows are not in the count: the rate across them would be too low.
TEST(HeartbeatRegistry, AnotherRunOfLaunchesIsAnotherUnit) {
  Launches beats;
  beats.gpus[0].tenants = {tenant(process(17))};
  const auto count = [&](double done, std::uint64_t run) {
    beats.launch(process(17), "", LaunchState{.phase = 1, .done = done, .run = run});
    return beats.at(0).status.progress->run;
  };
  const auto first = count(500, 1);
  EXPECT_EQ(count(600, 1), first);
  const auto second = count(700, 2);
  EXPECT_NE(second, first);
  EXPECT_EQ(count(800, 2), second);
}

TEST(HeartbeatRegistry, NobodyLaunchesForAnotherUser) {
  Launches beats;
  beats.gpus[0].tenants = {tenant(process(17, kAnn))};
  beats.launch(process(18, kBob), "GPU-a", 500);
  EXPECT_FALSE(beats.done(0));
}

}  // namespace
}  // namespace derate
