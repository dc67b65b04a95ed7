#include "lab_attribution_view.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "test_text.h"

namespace derate::cli {
namespace {

const TenantScenario kScenario{.name = "quiet", .summary = "two tenants that do little"};

// Misattributed that share of the energy in every stretch.
MethodResult method(const std::string& name, double share) {
  AttributionScore score;
  for (StretchScore* stretch : {&score.minute, &score.five_minutes, &score.later}) {
    stretch->wrong_j = share * 1000;
    stretch->true_j = 1000;
  }
  score.later_runs = {share};
  return {name, score};
}

AttributionBench bench() {
  AttributionBench out;
  out.scenarios = {&kScenario};
  return out;
}

TEST(LabAttribution, BarsAreMetOrMissed) {
  std::vector<ScenarioResult> results{
      {&kScenario, {method("online", 0.04), method("offline-linear (all)", 0.1)}}};
  std::string text = attribution_text(bench(), results);
  for (const char* part : {"8 runs of 30 simulated minutes, seeds 1 to 8", "quiet: two tenants",
                           "online", "4.0", "10.0", "met", "exact"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "missed"));
  results[0].methods[0] = method("online", 0.08);
  text = attribution_text(bench(), results);
  EXPECT_TRUE(has(text, "missed in quiet (0 of 1 met)")) << text;
}

TEST(LabAttribution, SumsThatAreOffAreSaid) {
  MethodResult wrong = method("online", 0.1);
  wrong.score.unsettled_mj = 3;
  EXPECT_TRUE(has(attribution_text(bench(), {{&kScenario, {wrong}}}), "missed, 3 mJ off"));
}

// Without the methods that a figure takes it is left out, in place of a zero.
TEST(LabAttribution, WhatWasNotJudgedIsLeftOut) {
  const std::vector<ScenarioResult> results{{&kScenario, {method("online", 0.04)}}};
  const Json json = attribution_json(bench(), results);
  const Json& scenario = json["scenarios"][0];
  EXPECT_DOUBLE_EQ(scenario["methods"][0]["later_misattributed_ratio"].get<double>(), 0.04);
  EXPECT_FALSE(scenario["methods"][0].contains("rmse_watts"));
  EXPECT_TRUE(scenario["result"].contains("online_misattributed_ratio"));
  for (const char* key : {"best_offline_method", "online_of_best_offline_ratio"})
    EXPECT_FALSE(scenario["result"].contains(key)) << key;
  EXPECT_EQ(json["run_seconds"], 1800.0);
}

}  // namespace
}  // namespace derate::cli
