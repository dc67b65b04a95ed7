#include "lab/overall.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "base/json.h"
#include "device/sim/test_sim.h"
#include "lab/known_apps.h"
#include "lab/overall_json.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

Plan two_chips(const std::string& policies) {
  const auto e = parse_experiment(
      "[experiment]\nrepetitions = 2\n[gpus]\nchips = [\"V100-SXM2\", \"H200\"]\n[workloads]\n"
      "fitted = [\"*\"]\n" +
          policies,
      "x.toml");
  CHECK(e.ok());
  auto plan = make_plan(*e, "/nowhere");
  CHECK(plan.ok());
  return *std::move(plan);
}

constexpr const char* kThree =
    "[[policy]]\nname = \"assure\"\n[[policy]]\nname = \"assure\"\nlabel = \"assure, left out\"\n"
    "set = {leave_out = \"yes\"}\n[[policy]]\nname = \"geepafs\"\n";

StoredJob one_job(const std::string& chip, const std::string& policy, const std::string& app,
                  int repetition, Duration time, double joules) {
  StoredJob out;
  out.session = {chip, "", policy, repetition};
  out.job.app = app;
  out.job.time = time;
  out.job.work = 100;
  out.job.energy = Joules(joules);
  return out;
}

// Both repetitions of an application under the baseline (100 s, 10 kJ) and a policy.
void add_both(std::vector<StoredJob>& jobs, const char* chip, const char* policy, const char* app,
              Duration time, double joules) {
  for (int i = 0; i < 2; ++i) {
    jobs.push_back(one_job(chip, "max-freq", app, i, 100s, 10e3));
    jobs.push_back(one_job(chip, policy, app, i, time, joules));
  }
}

// Two applications of one stage and one of another: each has a third of the weight, not the stages
// a half each.
TEST(Overall, EachApplicationHasTheSameWeightWhateverItsStage) {
  const Plan plan = two_chips(kThree);
  std::vector<StoredJob> jobs;
  add_both(jobs, "V100-SXM2", "geepafs", "GeMM", 100s, 7e3);
  add_both(jobs, "V100-SXM2", "geepafs", "FFT", 100s, 7e3);
  add_both(jobs, "H200", "geepafs", "copy", 125s, 10e3);
  const Overall all = overall(plan, jobs);
  ASSERT_EQ(all.policies.size(), 3u);
  const OverallResult& geepafs = all.policies[2];
  EXPECT_EQ(geepafs.apps, 3u);
  EXPECT_EQ(geepafs.jobs, 6);
  EXPECT_EQ(geepafs.broken, 2);
  EXPECT_EQ(geepafs.judged, 6);
  EXPECT_NEAR(geepafs.saving.mean, (0.3 + 0.3 + 0) / 3, 1e-12);
  EXPECT_NEAR(geepafs.loss.mean, 0.2 / 3, 1e-12);
  ASSERT_TRUE(geepafs.saving.low && geepafs.saving.high);
  EXPECT_LT(*geepafs.saving.low, 0.2);
  EXPECT_GT(*geepafs.saving.high, 0.2);
  EXPECT_EQ(all.headline, "geepafs");  // nothing else has run
  EXPECT_TRUE(all.differences.empty());
}

TEST(Overall, TheHeadlineIsOfTheRowWhosePriorsDoNotKnowTheApplications) {
  const Plan plan = two_chips(kThree);
  std::vector<StoredJob> jobs;
  for (const char* policy : {"assure", "assure, left out", "geepafs"})
    add_both(jobs, "V100-SXM2", policy, "GeMM", 105s, 8e3);
  const Overall all = overall(plan, jobs);
  EXPECT_EQ(all.headline, "assure, left out");
  EXPECT_EQ(all.policies[0].known_apps, plan.stages[0].apps.size() + 1);  // the H200's fft
  EXPECT_EQ(all.policies[1].known_apps, 0u);
  EXPECT_EQ(all.policies[2].known_apps, 0u);
  jobs.clear();
  add_both(jobs, "V100-SXM2", "assure", "GeMM", 105s, 8e3);
  EXPECT_EQ(overall(plan, jobs).headline, "assure");
}

// A part that is common to both is not in the difference, however large it is.
TEST(Overall, DifferencesArePairedJobByJob) {
  const Plan plan = two_chips(kThree);
  std::vector<StoredJob> jobs;
  const char* apps[] = {"GeMM", "FFT", "SRAD"};
  for (int i = 0; i < 3; ++i) {
    add_both(jobs, "V100-SXM2", "assure", apps[i], 100s, 9e3 - 2e3 * i);
    add_both(jobs, "V100-SXM2", "geepafs", apps[i], 110s, 8.9e3 - 2e3 * i);
  }
  const Overall all = overall(plan, jobs);
  ASSERT_EQ(all.differences.size(), 1u);
  const PairedDifference& difference = all.differences[0];
  EXPECT_EQ(difference.than, "geepafs");
  EXPECT_EQ(difference.jobs, 6);
  EXPECT_EQ(difference.apps, 3u);
  EXPECT_NEAR(difference.saving.mean, -0.01, 1e-12);
  EXPECT_NEAR(*difference.saving.low, -0.01, 1e-9);
  EXPECT_NEAR(*difference.saving.high, -0.01, 1e-9);
  EXPECT_LT(difference.loss.mean, 0);  // assure loses less
}

TEST(Overall, JobsThatFailedAreInNoFigure) {
  const Plan plan = two_chips(kThree);
  std::vector<StoredJob> jobs;
  add_both(jobs, "V100-SXM2", "geepafs", "GeMM", 100s, 7e3);
  jobs.back().job.error = "exit code 1";
  const Overall all = overall(plan, jobs);
  EXPECT_EQ(all.policies[2].jobs, 1);
  EXPECT_FALSE(all.policies[2].saving.low);  // of one job
  EXPECT_EQ(all.policies[0].jobs, 0);
  Json json;
  add_overall(json, plan, all);
  EXPECT_FALSE(json["overall"][0].contains("loss_ratio"));
  EXPECT_EQ(json["overall"][2]["jobs"], 1);
  EXPECT_EQ(json["simulated"], true);
  std::size_t apps = 0;
  for (const Json& source : json["workload_sources"]) apps += source["apps"].get<std::size_t>();
  EXPECT_EQ(apps, plan.stages[0].apps.size() + plan.stages[1].apps.size());
}

// An experiment's digest changes with its text.
RC_GTEST_PROP(Overall, DigestsTellTextsApart, (const std::string& a, const std::string& b)) {
  RC_ASSERT((text_digest(a) == text_digest(b)) == (a == b));
  RC_ASSERT(text_digest(a).size() == 16u);
}

PolicyChoice assure_with(const std::vector<std::string>& set) {
  const PolicyInfo* info = *find_policy("assure");
  return {info, *policy_params(*info, set), "assure", 1};
}

TEST(KnownApps, AreThoseOfThePriorsThatThePolicyUses) {
  const std::vector<std::string> apps = {"gemm", "fft", "copy", "GeMM>copy", "copy->SRAD"};
  const std::vector<std::string> of_v100 = {"gemm", "fft", "GeMM>copy", "copy->SRAD"};
  EXPECT_EQ(known_apps(assure_with({}), "V100-SXM2", apps), of_v100);
  // An H200 has no rows of its own: all chips' are used.
  EXPECT_EQ(known_apps(assure_with({}), "H200", apps), of_v100);
  // The A100's rows have an fft and an srad, and no GeMM.
  const std::vector<std::string> of_a100 = {"fft", "copy->SRAD"};
  EXPECT_EQ(known_apps(assure_with({}), "A100-SXM4", apps), of_a100);
  EXPECT_EQ(known_apps(assure_with({"prior=A100-SXM4"}), "V100-SXM2", apps), of_a100);
  EXPECT_EQ(known_apps(assure_with({"prior=all"}), "A100-SXM4", apps), of_v100);
  // An application that is left out by its name is not known; parts of a pair are not left out.
  const std::vector<std::string> parts = {"GeMM>copy", "copy->SRAD"};
  EXPECT_EQ(known_apps(assure_with({"leave_out=yes"}), "V100-SXM2", apps), parts);
  const PolicyInfo* other = *find_policy("geepafs");
  EXPECT_TRUE(
      known_apps({other, *policy_params(*other, {}), "geepafs", 1}, "V100-SXM2", apps).empty());
}

TEST(KnownApps, AreWarnedOfUnlessARowLeavesThemOut) {
  EXPECT_TRUE(two_chips(kThree).warnings.empty());
  const auto warnings = two_chips("[[policy]]\nname = \"assure\"\n").warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("assure's priors were made with measurements of 3MM, BWtest, "
                             "CNN_1.5M and 20 more"),
            std::string::npos)
      << warnings[0];
  EXPECT_TRUE(two_chips("[[policy]]\nname = \"geepafs\"\n").warnings.empty());
}

}  // namespace
}  // namespace derate
