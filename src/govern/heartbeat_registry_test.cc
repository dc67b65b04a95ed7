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

struct Desk {
  HeartbeatRegistry book;
  std::vector<GpuTenants> gpus = std::vector<GpuTenants>(2);
  PromiseRules rules;
  Instant now{};

  Desk() {
    for (int i = 0; i < 2; ++i) gpus[static_cast<std::size_t>(i)].id = {i, i ? "GPU-b" : "GPU-a"};
  }
  void say(const ProcessFacts& who, const char* text) {
    book.hear(*parse_beat(text), {who.uid.value_or(0), who.pid}, who, now);
  }
  // One whose process is gone when he is heard.
  void say_and_go(std::uint32_t uid, std::int64_t pid, const char* text) {
    book.hear(*parse_beat(text), {uid, pid}, {}, now);
  }
  GpuWork at(std::size_t gpu) { return book.status(gpus, rules, now)[gpu]; }
  std::optional<double> done(std::size_t gpu) {
    const auto beat = at(gpu).status.beat;
    return beat ? std::optional(beat->done) : std::nullopt;
  }
};

using Announced = HeartbeatRegistry::Announced;

TEST(HeartbeatRegistry, WhatAnEnvironmentSaysIsAnnouncedByItsOwnUser) {
  Desk desk;
  desk.say(process(17), "delta=0.02 job=7");
  EXPECT_EQ(desk.book.announced(process(17)), (Announced{"0.02", "7"}));
  EXPECT_EQ(desk.book.announced(process(18)), Announced{});
  ProcessFacts later = process(17);  // the number, given out again
  later.started = 6;
  EXPECT_EQ(desk.book.announced(later), Announced{});
  // Bob, of his own process and of Ann's.
  desk.book.hear(*parse_beat("delta=0.5 pid=17"), {kBob, 99}, process(17), desk.now);
  desk.say(process(99, kBob), "delta=0.4");
  EXPECT_EQ(desk.book.announced(process(17)).asked, "0.02");
  desk.book.hear(*parse_beat("delta=inference pid=20"), {0, 1}, process(20), desk.now);
  EXPECT_EQ(desk.book.announced(process(20)).asked, "inference");
  desk.say_and_go(kAnn, 21, "delta=0.1");
  EXPECT_EQ(desk.book.announced(process(21)), Announced{});
  EXPECT_EQ(desk.book.speakers(), 0u);  // it says nothing of how its work goes
}

TEST(HeartbeatRegistry, AnAnnouncementIsForThoseBelowAndAboveInTheSession) {
  Desk desk;
  ProcessFacts shell = process(9), work = process(17), deeper = process(18);
  work.session = deeper.session = 9;
  work.ancestors = {9};
  deeper.ancestors = {17, 9};
  desk.say(shell, "delta=0.1 job=3");
  EXPECT_EQ(desk.book.announced(work), (Announced{"0.1", "3"}));
  EXPECT_EQ(desk.book.announced(deeper), (Announced{"0.1", "3"}));
  desk.say(work, "delta=0.02");  // the nearest
  EXPECT_EQ(desk.book.announced(deeper), (Announced{"0.02", "3"}));
  EXPECT_EQ(desk.book.announced(shell).asked, "0.1");
  ProcessFacts other = deeper;
  other.uid = kBob;  // by sudo, in Ann's session
  EXPECT_EQ(desk.book.announced(other), Announced{});
  other = deeper;
  other.session = 18;
  EXPECT_EQ(desk.book.announced(other), Announced{});
  Desk second;
  second.say(deeper, "delta=0.3");  // a child that beats for what started it
  EXPECT_EQ(second.book.announced(work).asked, "0.3");
}

TEST(HeartbeatRegistry, AnnouncementsOutliveSilenceAndNobodyCrowdsOutOthers) {
  Desk desk;
  desk.say(process(17), "job=7");
  for (std::int64_t pid = 100; pid < 1000; ++pid) desk.say(process(pid, kBob), "job=8");
  desk.now += 24h;
  (void)desk.at(0);
  EXPECT_EQ(desk.book.announced(process(17)).job, "7");
  EXPECT_EQ(desk.book.announced(process(999, kBob)).job, "8");
  EXPECT_EQ(desk.book.announced(process(100, kBob)).job, "");  // 64 of a user
}

TEST(HeartbeatRegistry, AProcessSpeaksOfTheGpusThatItWorksOn) {
  Desk desk;
  desk.gpus[1].tenants = {tenant(process(17))};
  desk.say(process(17), "done=5 phase=warm-up");
  EXPECT_EQ(desk.done(0), std::nullopt);
  EXPECT_EQ(desk.done(1), 5);
  EXPECT_EQ(desk.at(1).status.phase, "warm-up");
  EXPECT_EQ(desk.at(1).status.name, "train");
  desk.gpus[0].tenants = {tenant(process(17))};
  EXPECT_EQ(desk.done(0), 5);
}

TEST(HeartbeatRegistry, AForeignUserIsNotBelieved) {
  Desk desk;
  desk.gpus[0].tenants = {tenant(process(17))};
  desk.say(process(99, kBob), "done=5 max_loss=0.01");
  desk.say(process(99, kBob), "done=5 gpu=0 max_loss=0.01");
  desk.say(process(17, kBob), "done=5");  // a number that was Ann's
  // He says that he is Ann's process; the kernel says who he is.
  desk.book.hear(*parse_beat("done=5 pid=17"), {kBob, 99}, process(17), desk.now);
  EXPECT_EQ(desk.done(0), std::nullopt);
  EXPECT_EQ(desk.at(0).status.max_loss, std::nullopt);
  EXPECT_EQ(desk.book.counts().unplaced, 3u);
  ProcessFacts hidden = process(17);
  hidden.uid.reset();
  desk.gpus[0].tenants = {tenant(hidden)};
  EXPECT_EQ(desk.done(0), std::nullopt);
}

TEST(HeartbeatRegistry, RootSpeaksOfAnyGpuThatItNames) {
  Desk desk;
  desk.gpus[0].tenants = {tenant(process(17))};
  desk.say(process(9, 0), "done=5");
  EXPECT_EQ(desk.done(0), std::nullopt);
  desk.say(process(9, 0), "done=6 gpu=GPU-a max_loss=0.02");
  desk.say(process(9, 0), "done=7 gpu=1 max_loss=0.02");
  EXPECT_EQ(desk.done(0), 6);
  EXPECT_EQ(desk.done(1), 7);
  EXPECT_EQ(desk.at(0).status.max_loss, Fraction(0.02));
  EXPECT_EQ(desk.at(1).status.max_loss, Fraction(0.02));
}

TEST(HeartbeatRegistry, KinAreBelievedNearestFirst) {
  ProcessFacts work = process(20), shell = process(10), pipe = process(21);
  work.session = shell.session = pipe.session = 10;
  work.ancestors = pipe.ancestors = {10};
  work.group = pipe.group = 20;
  ProcessFacts other = process(30);
  Desk desk;
  desk.gpus[0].tenants = {tenant(work)};
  desk.gpus[1].tenants = {tenant(other)};
  desk.say(shell, "done=1");  // the parent, for one-shots
  EXPECT_EQ(desk.done(0), 1);
  EXPECT_EQ(desk.done(1), std::nullopt);
  desk.say(pipe, "done=2");  // beside it in a pipe: its parent stands nearer
  EXPECT_EQ(desk.done(0), 1);
  desk.say(work, "done=3");
  EXPECT_EQ(desk.done(0), 3);
  // Another session is nobody's kin, and the user has two GPUs.
  ProcessFacts elsewhere = process(40);
  elsewhere.ancestors = {};
  Desk second;
  second.gpus = desk.gpus;
  second.say(elsewhere, "done=9");
  EXPECT_EQ(second.done(0), std::nullopt);
  second.gpus[1].tenants.clear();
  EXPECT_EQ(second.done(0), 9);
}

TEST(HeartbeatRegistry, WhoIsGoneAlreadySpeaksOfTheUsersOnlyGpu) {
  Desk desk;
  desk.gpus[0].tenants = {tenant(process(17))};
  desk.say_and_go(kAnn, 50, "done=1");
  const auto first = desk.at(0).status.beat;
  desk.say_and_go(kAnn, 51, "done=2");
  const auto second = desk.at(0).status.beat;
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->source, second->source);
  desk.gpus[1].tenants = {tenant(process(18))};
  EXPECT_EQ(desk.done(0), std::nullopt);
}

TEST(HeartbeatRegistry, ACountBegunAnewIsAnotherSource) {
  Desk desk;
  desk.gpus[0].tenants = {tenant(process(17))};
  desk.say(process(17), "done=5");
  const auto first = desk.at(0).status.beat->source;
  desk.say(process(17), "done=6");
  EXPECT_EQ(desk.at(0).status.beat->source, first);
  desk.say(process(17), "done=2");
  const auto second = desk.at(0).status.beat->source;
  EXPECT_NE(second, first);
  // The number was given to another process.
  ProcessFacts later = process(17);
  later.started = 99;
  desk.gpus[0].tenants = {tenant(later)};
  desk.say(later, "done=3");
  EXPECT_NE(desk.at(0).status.beat->source, second);
  EXPECT_EQ(desk.book.speakers(), 1u);
}

TEST(HeartbeatRegistry, WhoFallsSilentIsForgottenButItsPromiseIsKept) {
  Desk desk;
  desk.gpus[0].tenants = {tenant(process(17))};
  desk.say(process(17), "done=5 max_loss=0.02 phase=x");
  desk.now += 10s;
  EXPECT_EQ(desk.done(0), 5);
  desk.now += 1s;
  EXPECT_EQ(desk.done(0), std::nullopt);
  EXPECT_EQ(desk.at(0).status.phase, "");
  EXPECT_EQ(desk.at(0).status.max_loss, Fraction(0.02));
  // ... of its process, not of the next.
  ProcessFacts next = process(18);
  desk.gpus[0].tenants = {tenant(next)};
  EXPECT_EQ(desk.at(0).status.max_loss, std::nullopt);
  EXPECT_EQ(desk.book.speakers(), 0u);
}

TEST(HeartbeatRegistry, SlowCountsAreGivenTheirTime) {
  Desk desk;
  desk.gpus[0].tenants = {tenant(process(17))};
  desk.say(process(17), "done=1");
  desk.now += 60s;
  desk.say(process(17), "done=2");
  desk.now += 299s;
  desk.say(process(17), "phase=other");  // says nothing of how far it is
  EXPECT_EQ(desk.done(0), 2);
  desk.now += 2s;
  EXPECT_EQ(desk.done(0), std::nullopt);
}

TEST(HeartbeatRegistry, SeveralCountsAreNotAdded) {
  Desk desk;
  const ProcessFacts a = process(17), b = process(18);
  desk.gpus[0].tenants = {tenant(a, 0.6), tenant(b, 0.4)};
  desk.say(a, "done=5 phase=x max_loss=0.2");
  desk.say(b, "done=7 phase=y max_loss=0.1");
  EXPECT_EQ(desk.done(0), 5);
  EXPECT_EQ(desk.at(0).status.max_loss, Fraction(0.1));
  desk.gpus[0].tenants = {tenant(a, 0.52), tenant(b, 0.48)};
  EXPECT_EQ(desk.done(0), std::nullopt);
  EXPECT_EQ(desk.at(0).status.phase, "x+y");
  desk.gpus[0].tenants = {tenant(a), tenant(b)};
  EXPECT_EQ(desk.done(0), std::nullopt);
}

// Otherwise a small process could have a large neighbour slowed down by what it says.
TEST(HeartbeatRegistry, ACountBesideAnotherUsersWorkMustBeOfTheLargest) {
  Desk desk;
  const ProcessFacts mine = process(17, kAnn), theirs = process(18, kBob);
  desk.say(mine, "done=5");
  desk.gpus[0].tenants = {tenant(mine, 0.1), tenant(theirs, 0.9)};
  EXPECT_EQ(desk.done(0), std::nullopt);
  desk.gpus[0].tenants = {tenant(mine, 0.9), tenant(theirs)};
  EXPECT_EQ(desk.done(0), 5);
}

TEST(HeartbeatRegistry, TenantsWithoutAPromiseHaveThePolicysOwn) {
  Desk desk;
  desk.gpus[0].policy_delta = Fraction(0.1);
  desk.gpus[0].tenants = {tenant(process(17))};
  EXPECT_EQ(desk.at(0).status.max_loss, std::nullopt);
  desk.say(process(17), "max_loss=0.25");
  EXPECT_EQ(desk.at(0).status.max_loss, Fraction(0.25));
  EXPECT_EQ(desk.at(0).promise_from, "beat");
  desk.gpus[0].tenants.push_back(tenant(process(18, kBob)));
  EXPECT_EQ(desk.at(0).status.max_loss, Fraction(0.1));
  EXPECT_EQ(desk.at(0).promise_from, "policy");
}

TEST(HeartbeatRegistry, OneUserCannotCrowdOutTheOthers) {
  Desk desk;
  desk.gpus[0].tenants = {tenant(process(17))};
  desk.say(process(17), "done=5");
  for (std::int64_t pid = 100; pid < 1000; ++pid) desk.say(process(pid, kBob), "done=1");
  EXPECT_LE(desk.book.speakers(), HeartbeatRegistry::kMostOfAUser + 1);
  EXPECT_EQ(desk.done(0), 5);
  int admitted = 0;
  for (int i = 0; i < 10000; ++i) admitted += desk.book.admit(kBob, desk.now) ? 1 : 0;
  EXPECT_EQ(admitted, HeartbeatRegistry::kAtOnce);
  EXPECT_TRUE(desk.book.admit(kAnn, desk.now));
  EXPECT_TRUE(desk.book.admit(kBob, desk.now + 1s));
  EXPECT_GT(desk.book.counts().too_many, 9000u);
}

// --- whatever is said by whom --------------------------------------------------------------------

RC_GTEST_PROP(HeartbeatRegistryProperty, NothingLooserThanMaxDeltaAndNoGrowth, ()) {
  Desk desk;
  desk.rules.max_delta = Fraction(*rc::gen::inRange(0, 51) / 100.0);
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
    desk.now += std::chrono::seconds(*rc::gen::inRange(0, 8));
    desk.say(any_process(), texts[*rc::gen::inRange(0, 5)]);
    for (GpuTenants& gpu : desk.gpus) {
      gpu.tenants.clear();
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i)
        gpu.tenants.push_back(tenant(any_process(), *rc::gen::inRange(0, 10) / 10.0));
    }
    const auto work = desk.book.status(desk.gpus, desk.rules, desk.now);
    for (GpuTenants& gpu : desk.gpus) std::reverse(gpu.tenants.begin(), gpu.tenants.end());
    const auto again = desk.book.status(desk.gpus, desk.rules, desk.now);
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (work[i].status.max_loss) RC_ASSERT(*work[i].status.max_loss <= desk.rules.max_delta);
      RC_ASSERT(work[i].status == again[i].status);
      RC_ASSERT(work[i].promise_from == again[i].promise_from);
      if (work[i].status.beat) RC_ASSERT(desk.now - work[i].status.beat->time <= 600s);
    }
  }
  desk.gpus[0].tenants.clear();
  desk.gpus[1].tenants.clear();
  desk.now += 1h;
  (void)desk.book.status(desk.gpus, desk.rules, desk.now);
  RC_ASSERT(desk.book.speakers() == 0u);
}

}  // namespace
}  // namespace derate
