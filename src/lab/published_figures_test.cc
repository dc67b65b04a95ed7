#include "lab/published_figures.h"

#include <gtest/gtest.h>

#include "lab/figures.h"

namespace derate {
namespace {

TEST(PublishedTable, AreMatchedToPoliciesByName) {
  const auto read = parse_published_figures(
      "app,eff_NVboost,eff_GEEPAFS,eff_Other,perf_NVboost,perf_GEEPAFS,perf_Other\n"
      "FFT,1.1,1.3,9,0.99,0.92,9\r\nGeMM,1.0,1.2,9,1,0.9,9\n",
      "p.csv", {"max-freq", "geepafs", "nv-boost"});
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 4u);
  EXPECT_EQ((*read)[0].policy, "geepafs");
  EXPECT_EQ((*read)[0].app, "FFT");
  EXPECT_EQ((*read)[0].efficiency, 1.3);
  EXPECT_EQ((*read)[0].performance, 0.92);
  EXPECT_EQ((*read)[3].policy, "nv-boost");
  EXPECT_EQ((*read)[3].performance, 1);
}

TEST(PublishedTable, NameWhatIsWrong) {
  const auto wrong = [](std::string_view csv) {
    const auto read = parse_published_figures(csv, "p.csv", {"geepafs"});
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(wrong("app,eff_geepafs,perf_geepafs\nFFT,1.2\n"),
            "p.csv:2: 2 cells, the first line has 3");
  EXPECT_EQ(wrong("app,eff_geepafs,perf_geepafs\nFFT,1.2,\n"),
            "p.csv:2: '': wanted a ratio in (0, 100]");
  EXPECT_EQ(wrong("app,eff_geepafs,perf_geepafs\nFFT,1.2,-1\n"),
            "p.csv:2: '-1': wanted a ratio in (0, 100]");
  EXPECT_NE(wrong("app,eff_geepafs\n").find("p.csv:1: no columns"), std::string::npos);
  EXPECT_NE(wrong("").find("p.csv:1: no columns"), std::string::npos);
}

TEST(PublishedTable, StandBesideWhatTheStageHas) {
  StageResult stage;
  PolicyResult policy;
  policy.label = "geepafs";
  AppResult app;
  app.app = "FFT";
  app.jobs = 1;
  app.gain.mean = 0.25;
  app.loss.mean = 0.12;
  AppResult failed;
  failed.app = "GeMM";
  policy.apps = {app, failed};
  stage.policies = {policy};
  const auto both = beside_published(
      stage, {{"geepafs", "FFT", 1.3, 0.92}, {"geepafs", "GeMM", 1.2, 0.9}, {"x", "FFT", 1, 1}});
  ASSERT_EQ(both.size(), 1u);
  EXPECT_NEAR(both[0].gain_difference(), -0.05, 1e-12);
  EXPECT_NEAR(both[0].loss_difference(), 0.04, 1e-12);
  EXPECT_NEAR(both[0].largest_difference(), 0.05, 1e-12);
}

}  // namespace
}  // namespace derate
