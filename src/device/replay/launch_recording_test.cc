#include "device/replay/launch_recording.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kText =
    "time_s,steps,phase,000000000000000a,ff\n"
    "0.0,,,5,\n"
    "0.1,1.0,train,10,2\n"
    "0.2,2.0,train,10,\n"
    "0.3,3.0,train,20,4\n"
    "0.4,,,,\n";

TEST(LaunchRecording, IsReadAsSums) {
  const auto read = parse_launches(kText, "x.csv");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->rows.size(), 5u);
  EXPECT_FALSE(read->rows[0].steps);
  EXPECT_EQ(read->rows[2].steps, 2.0);
  EXPECT_EQ(read->rows[2].phase, "train");
  EXPECT_EQ(read->rows[3].counts, (LaunchCounts{{10, 45}, {255, 6}}));
  const LaunchRecording steady = read->by_steps(0ms);
  EXPECT_EQ(steady.rows.size(), 3u);
  EXPECT_EQ(read->by_steps(150ms).rows.size(), 1u);
}

TEST(LaunchRecording, SaysWhatIsWrongAndWhere) {
  const auto message = [](std::string_view text) {
    const auto read = parse_launches(text, "x.csv");
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(message("time,x\n"), "x.csv:1: 'time,x': time_s,steps,phase and kernels are wanted");
  EXPECT_EQ(message("time_s,steps,phase,0g\n"), "x.csv:1: '0g': a number is wanted");
  EXPECT_EQ(message("time_s,steps,phase,a\n0,,\n"), "x.csv:2: '0,,': 4 cells are wanted");
  EXPECT_EQ(message("time_s,steps,phase,a\n0,,,1\n0,,,1\n"),
            "x.csv:3: '0': a later time than before is wanted");
  EXPECT_EQ(message("time_s,steps,phase,a\n0,,,-1\n"), "x.csv:2: '-1': a number is wanted");
}

TEST(LaunchRecording, IsPlayedAgainAndAgain) {
  const LaunchRecording steady = parse_launches(kText, "x.csv")->by_steps(0ms);
  EXPECT_TRUE(launches_after(steady, 0ms).empty());
  EXPECT_EQ(launches_after(steady, 50ms), (LaunchCounts{{10, 5}}));
  EXPECT_EQ(launches_after(steady, 150ms), (LaunchCounts{{10, 20}, {255, 2}}));
  EXPECT_EQ(launches_after(steady, 200ms), (LaunchCounts{{10, 30}, {255, 4}}));
  EXPECT_EQ(launches_after(steady, 1s), (LaunchCounts{{10, 150}, {255, 20}}));
}

// A machine that was slow for a while.
TEST(LaunchRecording, ByStepsEachStepTakesAsLong) {
  const auto read = parse_launches(
      "time_s,steps,phase,a\n0,0,,\n0.1,1,,10\n1.1,2,,10\n1.2,2,,\n1.3,5,,30\n", "x.csv");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const LaunchRecording even = read->by_steps(0ms);
  ASSERT_EQ(even.rows.size(), 4u);
  for (const LaunchRecording::Row& row : even.rows)
    EXPECT_NEAR(seconds(row.at), *row.steps * 1.3 / 5, 1e-6);
  EXPECT_EQ(launches_after(even, 780ms), (LaunchCounts{{10, 30}}));
}

RC_GTEST_PROP(LaunchRecording, NeverFalls, ()) {
  const LaunchRecording steady = parse_launches(kText, "x.csv")->by_steps(0ms);
  const auto first = std::chrono::milliseconds(*rc::gen::inRange(0, 2000));
  const auto more = std::chrono::milliseconds(*rc::gen::inRange(0, 500));
  const LaunchCounts before = launches_after(steady, first);
  const LaunchCounts after = launches_after(steady, first + more);
  for (const auto& [id, count] : before) {
    RC_ASSERT(after.contains(id));
    RC_ASSERT(after.at(id) >= count);
  }
}

}  // namespace
}  // namespace derate
