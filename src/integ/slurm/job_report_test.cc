#include "integ/slurm/job_report.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

ReportJob of(const char* user, const char* account, double joules, std::optional<bool> kept = {}) {
  return {.shown = "1",
          .user = user,
          .account = account,
          .energy = JobEnergy{.joules = joules, .kept = kept, .nodes = 1, .of_nodes = 1}};
}

TEST(JobReport, SumsByAccountTheLargestFirst) {
  ReportJob unknown{.shown = "9", .user = "eve", .account = "a", .energy = std::nullopt};
  ReportJob partly = of("ada", "b", 5);
  partly.energy->of_nodes = 2;
  const auto lines = report_by(
      ReportBy::account,
      {of("ada", "a", 10, true), of("bob", "a", 20, false), unknown, partly, of("ada", "", 99)});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(
      lines[0],
      (ReportLine{.name = "a", .jobs = 3, .measured = 2, .promised = 2, .kept = 1, .joules = 30}));
  EXPECT_EQ(lines[1],
            (ReportLine{.name = "b", .jobs = 1, .measured = 1, .partly = 1, .joules = 5}));
  EXPECT_EQ(lines[2].name, "");
}

TEST(JobReport, AnUnknownSavingIsNoSavingOfZero) {
  ReportJob saved = of("ada", "a", 10);
  saved.energy->saved_joules = 3;
  saved.energy->saved_sd_joules = 1;
  EXPECT_FALSE(report_by(ReportBy::user, {of("ada", "a", 10)})[0].saved_joules);
  const auto both = report_by(ReportBy::user, {of("ada", "a", 10), saved, saved});
  EXPECT_EQ(both[0].saved_joules, 6);
  EXPECT_EQ(both[0].saved_sd_joules, 2);
}

TEST(JobReport, OtherWordsAreRefused) {
  EXPECT_EQ(*parse_report_by("job"), ReportBy::job);
  EXPECT_EQ(parse_report_by("pod").error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace derate
