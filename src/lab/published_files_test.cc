#include "lab/published_files.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

// As the daemon writes it: no zeros in front, a comma and a blank, -1 where nothing was set; two
// GPUs.
constexpr const char* kLog =
    "Apply policy: Assure\nMACHINE v100-maxq\nGPU freqset tool start..\n"
    "Reset GPU frequency for: device 0. device 1. \nMain loop start..\n"
    "2024-2-9 8:1:3, 0, 0, 47155, 817, 855, 100, 13, 75961, 855, -1, 127379\n"
    "2024-2-9 8:1:4, 1, 0, 56426, 1245, 1440, 100, 13, 76010, 855, -1, 10835\n";

TEST(GeepafsLog, IsReadWithAnyNumberOfGpus) {
  const auto log = parse_geepafs_log(kLog, "a.out");
  ASSERT_TRUE(log.ok()) << log.error().message;
  EXPECT_EQ(log->policy, "Assure");
  EXPECT_EQ(log->machine, "v100-maxq");
  EXPECT_FALSE(log->cut_off);
  ASSERT_EQ(log->rows.size(), 2u);
  EXPECT_EQ(log->rows[1].time - log->rows[0].time, 1s);
  ASSERT_EQ(log->rows[0].gpus.size(), 2u);
  EXPECT_EQ(log->rows[0].gpus[0].set, Megahertz(855));
  EXPECT_FALSE(log->rows[0].gpus[1].set);
  EXPECT_NEAR(log->rows[0].gpus[1].power.value(), 75.961, 1e-9);
  EXPECT_EQ(log->rows[1].gpus[0].sm_clock, Megahertz(1245));
  EXPECT_EQ(log->rows[0].work, 127379us);
}

// Cut anywhere, the whole lines survive.
TEST(GeepafsLog, ALastLineThatIsCutOffIsToldAndLeftOut) {
  const std::string whole = kLog;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto log = parse_geepafs_log(whole.substr(0, length), "a.out");
    ASSERT_TRUE(log.ok()) << length << ": " << log.error().message;
    EXPECT_EQ(log->cut_off, length > 0 && whole[length - 1] != '\n');
    EXPECT_LE(log->rows.size(), 1u);
  }
}

TEST(GeepafsLog, WhatIsWrongIsToldWithItsLine) {
  const auto wrong = [](const std::string& line) {
    const auto log = parse_geepafs_log("Main loop start..\n" + line + "\n", "a.out");
    EXPECT_FALSE(log.ok()) << line;
    return log.ok() ? "" : log.error().message;
  };
  EXPECT_EQ(wrong("2024-2-9 8:1:3, 0, 0, 47155, 817, 855"),
            "a.out:2: 6 columns: wanted a time, five a GPU, and the tick's cost");
  EXPECT_EQ(wrong("2024-2-9 8:1:3, 0, 0, -5, 817, 855, 10"),
            "a.out:2: '-5': wanted a number in [0, 10000000]");
  EXPECT_NE(wrong("2024-13-9 8:1:3, 0, 0, 5, 817, 855, 10").find("wanted a time of day"),
            std::string::npos);
}

PublishedRun two_jobs() {
  PublishedRun run{"geepafs", {}, kPublishedBegin, 20s};
  for (int i = 0; i < 2; ++i) {
    StoredJob one;
    one.session.repetition = i;
    one.job.app = "GeMM";
    one.job.time = i == 0 ? 100s : 110s;
    one.job.work = 100;
    one.job.energy = Joules(20'000);
    one.job.ticks = {{.time_s = 0,
                      .clock_mhz = 1530,
                      .power_w = 200,
                      .asked_mhz = 1147.f,
                      .gpu_utilisation = 0.99f,
                      .memory_utilisation = 0.4f},
                     {.time_s = 0.2f,
                      .clock_mhz = 1147,
                      .power_w = 150,
                      .asked_mhz = 1147.f,
                      .gpu_utilisation = 0.97f,
                      .memory_utilisation = 0.4f}};
    run.jobs.push_back(one);
  }
  return run;
}

TEST(PublishedFiles, OurOwnLogIsReadBack) {
  const auto log = parse_geepafs_log(dvfs_out(two_jobs()), "own");
  ASSERT_TRUE(log.ok()) << log.error().message;
  ASSERT_EQ(log->rows.size(), 4u);
  EXPECT_EQ(log->rows[0].gpus[0].set, Megahertz(1147));
  EXPECT_FALSE(log->rows[1].gpus[0].set);
  EXPECT_EQ(log->rows[2].time - log->rows[0].time, 120s);
}

TEST(PublishedFiles, TablesHaveTheirColumns) {
  const std::string processed = processed_csv(two_jobs());
  EXPECT_EQ(processed.substr(0, processed.find('\n')),
            "iter,app,performance,gpupower(W),power-efficiency,exetime(s),start,end,gpuUtil,"
            "gmemUtil,frequency");
  EXPECT_NE(processed.find("0,GeMM,1.000,200.0,0.005,100.00,2020-01-01 00:00:00.000,"
                           "2020-01-01 00:01:40.000,98.00,40.00,1338\n"),
            std::string::npos)
      << processed;
  const std::string mean = avg_iter_csv(two_jobs());
  EXPECT_NE(mean.find("\nGeMM,0.5,"), std::string::npos) << mean;
  EXPECT_NE(mean.find(",7.0710678"), std::string::npos) << mean;  // of 100 and 110
  EXPECT_NE(all_apps_out(two_jobs()).find("Iteration 1:\nApplication name: GeMM\n2020-1-1 0:2:0\n"),
            std::string::npos);
}

}  // namespace
}  // namespace derate
