#include "integ/slurm/slurm_job.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace derate {
namespace {

using Variables = std::map<std::string, std::string>;

Environment of(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

// As Slurm 22.05.8 sets them in a prolog.
Variables usual() {
  return {{"SLURM_JOB_ID", "4711"},       {"SLURM_JOB_UID", "1000"},     {"SLURM_JOB_USER", "ada"},
          {"SLURM_JOB_PARTITION", "gpu"}, {"SLURM_CLUSTER_NAME", "lab"}, {"SLURMD_NODENAME", "n2"},
          {"SLURM_JOB_GPUS", "0,2-3"}};
}

TEST(SlurmJob, IsTheEnvironmentOfAProlog) {
  const auto job = slurm_job(of(usual()));
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->id, 4711);
  EXPECT_EQ(job->uid, 1000u);
  EXPECT_EQ(job->user, "ada");
  EXPECT_EQ(job->account, "");
  EXPECT_EQ(job->partition, "gpu");
  EXPECT_EQ(job->node, "n2");
  EXPECT_EQ(job->gpus, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(job->array, "");
  EXPECT_EQ(job->wish, SlurmWish{});
}

TEST(SlurmJob, HasTheWishesOfItsUserAndItsPlaceInAnArray) {
  Variables all = usual();
  all["SPANK_DERATE"] = "0.07";
  all["SPANK_DERATE_POLICY"] = "assure";
  all["SPANK_DERATE_JOB"] = "resnet";
  all["SLURM_ARRAY_JOB_ID"] = "4700";
  all["SLURM_ARRAY_TASK_ID"] = "11";
  const auto job = slurm_job(of(all));
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->wish.governed, true);
  EXPECT_EQ(job->wish.delta, Fraction(0.07));
  EXPECT_EQ(job->wish.policy, "assure");
  EXPECT_EQ(job->wish.tuned_as, "resnet");
  EXPECT_EQ(job->array, "4700_11");
}

TEST(SlurmJob, AJobWithoutGpusHasNone) {
  Variables none = usual();
  none.erase("SLURM_JOB_GPUS");
  EXPECT_TRUE(slurm_job(of(none))->gpus.empty());
}

TEST(SlurmJob, RefusesWhatSlurmDoesNotSet) {
  const std::string long_text(1 << 20, '1');
  const std::vector<std::pair<const char*, std::vector<std::string>>> kBad = {
      {"SLURM_JOB_ID", {"", "-1", "+1", " 1", "1 ", "1;2", "0x10", "4294967294", "1e3", long_text}},
      {"SLURM_JOB_UID", {"", "-1", "4294967295", "root", long_text}},
      {"SLURM_JOB_USER", {"a b", "a\nb", "\x1b[2J", long_text}},
      {"SLURM_JOB_PARTITION", {"a b", "\xff"}},
      {"SLURM_JOB_GPUS",
       {"all", "-1", "0,0", "1,0", "0-", "GPU-0", "65:00.0", "0-99999999999", "0;1", long_text}},
      {"SLURM_JOB_RESTART_COUNT", {"", "-1", "x", long_text}},
  };
  for (const auto& [variable, values] : kBad)
    for (const std::string& value : values) {
      Variables all = usual();
      all[variable] = value;
      const auto job = slurm_job(of(all));
      ASSERT_FALSE(job.ok()) << variable << "='" << value.substr(0, 50) << "'";
      EXPECT_NE(job.error().message.find(variable), std::string::npos) << job.error().message;
      EXPECT_LT(job.error().message.size(), 400u);
    }
}

TEST(SlurmJob, BadOptionsOfTheUserAreIgnoredWithAReason) {
  const std::string long_text(1 << 20, '1');
  const std::vector<std::pair<const char*, std::vector<std::string>>> kBad = {
      {"SPANK_DERATE", {"", "ON", "0", "1", "1.5", "-0.1", "nan", "inf", "0.1x", long_text}},
      {"SPANK_DERATE_POLICY", {"a b", "$(id)", long_text}},
      {"SPANK_DERATE_JOB", {"a\nb", long_text}},
  };
  for (const auto& [variable, values] : kBad)
    for (const std::string& value : values) {
      Variables all = usual();
      all[variable] = value;
      const auto job = slurm_job(of(all));
      ASSERT_TRUE(job.ok()) << variable;
      EXPECT_EQ(job->wish, SlurmWish{});
      EXPECT_NE(job->bad_wish.find(variable), std::string::npos) << job->bad_wish;
      EXPECT_LT(job->bad_wish.size(), 400u);
    }
}

TEST(SlurmJob, CountsTheNodesOfAList) {
  EXPECT_EQ(count_of_nodes("n1"), 1);
  EXPECT_EQ(count_of_nodes("n[1-2]"), 2);
  EXPECT_EQ(count_of_nodes("n[1-3,7],login"), 5);
  EXPECT_EQ(count_of_nodes("rack[1-2]n[01-04]"), 8);
  for (const char* const bad :
       {"", ",", "n[", "n]", "n[]", "n[2-1]", "n[a]", "n1,", "n[1-99999999]", "a[1-9999]b[1-9999]"})
    EXPECT_FALSE(count_of_nodes(bad)) << bad;
  Variables all = usual();
  all["SLURM_NODELIST"] = "n[1-4]";
  all["SLURM_JOB_RESTART_COUNT"] = "2";
  EXPECT_EQ(slurm_job(of(all))->nodes, 4);
  EXPECT_EQ(slurm_job(of(all))->restart, 2);
}

// As a hostile user sets them, who has at most SPANK_* in hand: a job, or one readable line.
RC_GTEST_PROP(SlurmJob, AnyBytesAreAJobOrALine,
              (const std::map<std::string, std::string>& values)) {
  Variables all = usual();
  const char* const kNames[] = {"SPANK_DERATE", "SPANK_DERATE_POLICY", "SPANK_DERATE_JOB",
                                "SLURM_JOB_GPUS", "SLURM_JOB_ID"};
  std::size_t at = 0;
  for (const auto& [key, value] : values) all[kNames[at++ % std::size(kNames)]] = value;
  const auto job = slurm_job(of(all));
  const std::string said = job.ok() ? job->bad_wish : job.error().message;
  for (const char c : said) RC_ASSERT(c >= ' ' && c < 0x7f);
}

}  // namespace
}  // namespace derate
