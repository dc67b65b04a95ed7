#include "govern/fleet/assignments.h"

#include <gtest/gtest.h>

#include "policy/registry/registry.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{};
const std::string kGpu = "GPU-0";

Assignment policy_by(RequestOrigin origin, const std::string& who, const char* policy) {
  return {
      .origin = origin, .who = who, .policy = PolicyAssignment{{*find_policy(policy), {}}, false}};
}

std::string winner_of(const Assignments& all, Instant now = kNow) {
  const Assignment* said = all.winner(kGpu, now);
  return said == nullptr ? "nobody" : said->who;
}

TEST(Assignments, ALaterSourceComesBeforeAnEarlierOne) {
  Assignments all;
  EXPECT_EQ(winner_of(all), "nobody");
  all.put(kGpu, policy_by(origins::command, "root", "geepafs"));
  all.put(kGpu, policy_by(origins::configuration, "the configuration", "assure"));
  EXPECT_EQ(winner_of(all), "root");
  all.withdraw(kGpu, origins::command);
  EXPECT_EQ(winner_of(all), "the configuration");
  EXPECT_EQ(all.winner("GPU-1", kNow), nullptr);
}

// Released by command: observed, whatever the configuration says.
TEST(Assignments, WhoSaysThatAGpuIsObservedSaysSomething) {
  Assignments all;
  all.put(kGpu, policy_by(origins::configuration, "the configuration", "assure"));
  all.put(kGpu, {.origin = origins::command, .who = "root"});
  EXPECT_EQ(winner_of(all), "root");
  EXPECT_FALSE(all.winner(kGpu, kNow)->governs());
  all.withdraw(origins::configuration);
  EXPECT_EQ(all.find(kGpu, origins::configuration), nullptr);
  EXPECT_EQ(winner_of(all), "root");
}

TEST(Assignments, WhatHasAnEndIsSaidUntilThen) {
  Assignments all;
  all.put(kGpu, policy_by(origins::configuration, "the configuration", "assure"));
  Assignment window = policy_by(origins::command, "a maintenance window", "max-freq");
  window.until = kNow + 1h;
  all.put(kGpu, window);
  EXPECT_EQ(winner_of(all, kNow + 59min), "a maintenance window");
  EXPECT_EQ(winner_of(all, kNow + 1h), "the configuration");
}

TEST(Assignments, TheGpusOfAJobAreFoundByItsName) {
  Assignments all;
  for (const char* gpu : {"GPU-1", "GPU-0"})
    all.put(gpu, {.origin = origins::tuning, .who = "trial 7"});
  all.put("GPU-2", {.origin = origins::tuning, .who = "trial 8"});
  all.put("GPU-3", {.origin = origins::command, .who = "trial 7"});
  EXPECT_EQ(all.gpus_of(origins::tuning, "trial 7"), (std::vector<std::string>{"GPU-0", "GPU-1"}));
}

// A new origin is a row: a cluster's scheduler here, which comes before all there are
// (another_origin_test.cc has one between them).
TEST(Assignments, ANewOriginNeedsNoOtherCode) {
  constexpr static OriginRow kRow{"scheduler", "a job of the scheduler", 100};
  constexpr RequestOrigin kScheduler{kRow};
  Assignments all;
  all.put(kGpu, policy_by(origins::command, "root", "geepafs"));
  Assignment lease = policy_by(kScheduler, "Slurm job 17", "efficient-fix");
  lease.until = kNow + 1min;
  all.put(kGpu, lease);
  EXPECT_EQ(winner_of(all), "Slurm job 17");
  EXPECT_EQ(winner_of(all, kNow + 2min), "root");
}

// A name that is no policy would be refused at each request.
TEST(PolicySettings, ListsOfPoliciesNameOnlyThoseThatAre) {
  const std::pair<const char*, std::string& (*)(Settings&)> lists[] = {
      {"run.policies", [](Settings& s) -> std::string& { return s.run.policies; }},
      {"scheduler.policies", [](Settings& s) -> std::string& { return s.scheduler.policies; }},
      {"kubernetes.policies", [](Settings& s) -> std::string& { return s.kubernetes.policies; }}};
  for (const auto& [key, list] : lists) {
    Settings settings;
    list(settings) = "assure, , max-freq";
    EXPECT_TRUE(check_policy_settings(settings).ok()) << key;
    list(settings) = "assure, asure";
    const auto checked = check_policy_settings(settings);
    ASSERT_FALSE(checked.ok()) << key;
    EXPECT_NE(checked.error().message.find(key), std::string::npos) << checked.error().message;
    EXPECT_NE(checked.error().message.find("asure"), std::string::npos);
  }
}

}  // namespace
}  // namespace derate
