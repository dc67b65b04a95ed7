#include "integ/slurm/job_comment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

JobEnergy an_energy(double joules) {
  return {.joules = joules,
          .gpu_seconds = 100,
          .saved_joules = 50,
          .saved_sd_joules = 5,
          .promised = 0.9,
          .kept = true,
          .gpus = 2,
          .nodes = 1,
          .of_nodes = 2};
}

TEST(JobComment, IsReadAsItWasWritten) {
  EXPECT_EQ(comment_line(an_energy(1234.5)),
            R"({"derate":{"joules":1234.5,"gpu_seconds":100.0,"mean_watts":12.3,)"
            R"("saved_joules":50.0,"saved_sd_joules":5.0,"promised_performance_ratio":0.9,)"
            R"("promise_kept":true,"gpus":2,"nodes":1,"of_nodes":2}})");
  EXPECT_EQ(energy_in(comment_line(an_energy(1234.5))), an_energy(1234.5));
  JobEnergy unknown{.gpus = 1, .nodes = 1, .of_nodes = 1};
  EXPECT_EQ(energy_in(comment_line(unknown)), unknown);
}

TEST(JobComment, StandsBehindWhatTheCommentHas) {
  const std::string line = comment_line(an_energy(1));
  EXPECT_EQ(with_line("", line), line);
  EXPECT_EQ(with_line("site note | 7\n{\"other\":1}", line),
            "site note | 7\n{\"other\":1}\n" + line);
  EXPECT_EQ(with_line(with_line("note", comment_line(an_energy(7))), line), "note\n" + line);
  EXPECT_EQ(energy_in("note\n" + comment_line(an_energy(7)) + "\n" + line)->joules, 1);
  // As sacctmgr has stored it.
  std::string stored = comment_line(an_energy(7));
  std::replace(stored.begin(), stored.end(), '"', '`');
  EXPECT_EQ(energy_in("note\n" + stored), an_energy(7));
  EXPECT_EQ(with_line("note\n" + stored, line), "note\n" + line);
}

TEST(JobComment, AnotherTextHasNone) {
  for (const char* const text : {"", "{}", "{\"derate\":7}", "{\"derate\":{", "derate", "[1]"})
    EXPECT_FALSE(energy_in(text)) << text;
  EXPECT_FALSE(energy_in(R"({"derate":{"joules":"x"}})")->joules);
}

TEST(JobComment, AJobOfSeveralNodesHasTheirSum) {
  JobEnergy sum = an_energy(100);
  sum.add(an_energy(200));
  EXPECT_EQ(sum.joules, 300);
  EXPECT_EQ(sum.saved_sd_joules, 10);
  EXPECT_EQ(sum.gpus, 4);
  EXPECT_EQ(sum.nodes, 2);
  JobEnergy unknown = an_energy(7);
  unknown.joules.reset();
  unknown.kept = false;
  sum.add(unknown);
  EXPECT_FALSE(sum.joules);
  EXPECT_EQ(sum.kept, false);
}

TEST(JobComment, ARequeuedJobHasTheSumOfItsRuns) {
  JobEnergy first = an_energy(100), second = an_energy(30), third = an_energy(5);
  for (JobEnergy* each : {&first, &second, &third}) each->nodes = 2;
  second.restart = 1;
  third.restart = 3;
  const JobEnergy two = with_runs_before(second, first);
  EXPECT_EQ(two.joules, 130);
  EXPECT_EQ(two.runs, 2);
  EXPECT_EQ(two.nodes, 2);
  EXPECT_EQ(two.gpus, 2);
  EXPECT_EQ(energy_in(comment_line(two)), two);
  EXPECT_EQ(with_runs_before(second, two), two);
  const JobEnergy three = with_runs_before(third, two);
  EXPECT_EQ(three.joules, 135);
  EXPECT_EQ(three.runs, 3);
  EXPECT_EQ(with_runs_before(second, three), three);
  second.nodes = 1;
  EXPECT_EQ(with_runs_before(second, first).nodes, 1);
  EXPECT_EQ(with_runs_before(first, std::nullopt), first);
}

TEST(JobComment, RunsAreThoseOfTheJobItself) {
  const auto jobs = parse_sacct("8|7_1|ada|a|gpu|FAILED|5|1|other\n" +
                                ("7|7_2|ada|a|gpu|REQUEUED|5|1|" + comment_line(an_energy(9))) +
                                "\n7|7_2|ada|a|gpu|COMPLETED|5|1|note\n");
  const SacctRuns runs = runs_of(*jobs, "7");
  EXPECT_EQ(runs.newest->shown, "7_2");
  EXPECT_EQ(runs.energy->joules, 9);
  EXPECT_FALSE(runs_of(*jobs, "9").newest);
}

TEST(NodeShares, OthersFilesAndFoldersAreLeftAlone) {
  const Folder folder;
  const NodeShares one{folder.path(), "c-7-0", "n1", 1};
  ASSERT_TRUE(put_share(one, an_energy(100)).ok());
  for (const char* const name : {"sha256.sum", "a.share.b", "c-8-0.sum"})
    ASSERT_TRUE(write_file_atomically(folder.file(name), "", Durable::no).ok());
  const WallTime later = SystemClock().wall_now() + std::chrono::hours(48);
  EXPECT_TRUE(*claim_sum(one, false, later));
  EXPECT_TRUE(std::filesystem::exists(folder.file("sha256.sum")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("a.share.b")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("c-8-0.sum")));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_EQ(put_share(one, an_energy(100)).error().code, Errc::no_permission);
  EXPECT_EQ(claim_sum(one, false, later).error().code, Errc::no_permission);
}

TEST(NodeShares, OneNodeWritesTheSumOfAll) {
  const Folder folder;
  const NodeShares one{folder.path(), "c-7-0", "n1", 2}, two{folder.path(), "c-7-0", "n2", 2};
  const NodeShares other{folder.path(), "c-77-0", "n1", 1};
  ASSERT_TRUE(put_share(other, an_energy(1000)).ok());
  ASSERT_TRUE(put_share(one, an_energy(100)).ok());
  EXPECT_FALSE(*claim_sum(one, false, WallTime{}));
  ASSERT_TRUE(put_share(two, an_energy(200)).ok());
  const auto sum = claim_sum(two, false, WallTime{});
  ASSERT_TRUE(sum.ok() && *sum);
  EXPECT_EQ((*sum)->joules, 300);
  EXPECT_FALSE(*claim_sum(one, false, WallTime{}));
  EXPECT_FALSE(*claim_sum(one, true, WallTime{}));
  EXPECT_EQ((*claim_sum(other, false, WallTime{}))->joules, 1000);
}

TEST(NodeShares, WithoutTheOtherNodeTheSumSaysSo) {
  const Folder folder;
  const NodeShares one{folder.path(), "c-7-0", "n1", 2}, two{folder.path(), "c-7-0", "n2", 2};
  ASSERT_TRUE(put_share(one, an_energy(100)).ok());
  const auto sum = claim_sum(one, true, WallTime{});
  ASSERT_TRUE(sum.ok() && *sum);
  EXPECT_EQ((*sum)->nodes, 1);
  EXPECT_EQ((*sum)->of_nodes, 2);
  ASSERT_TRUE(put_share(two, an_energy(200)).ok());
  EXPECT_FALSE(*claim_sum(two, true, WallTime{}));
}

TEST(Sacct, ACommentMayHaveLinesAndBars) {
  const auto jobs = parse_sacct(
      "7|7|ada|physics|gpu|COMPLETED|61|2|note|7\n{\"derate\":{\"joules\":3}}\n"
      "9|8_1|bob||gpu|FAILED|5|1|\n");
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].account, "physics");
  EXPECT_EQ((*jobs)[0].nodes, 2);
  EXPECT_EQ(energy_in((*jobs)[0].comment)->joules, 3);
  EXPECT_EQ((*jobs)[1].shown, "8_1");
  EXPECT_EQ((*jobs)[1].comment.find("derate"), std::string::npos);
  EXPECT_TRUE(parse_sacct("")->empty());
  EXPECT_EQ(parse_sacct("sacct: error: no").error().code, Errc::bad_data);
}

}  // namespace
}  // namespace derate
