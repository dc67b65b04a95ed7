#include "signal/launches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace derate {
namespace {

using namespace std::chrono_literals;

TEST(Launches, AStateIsProgressInLaunchesOfItsPhase) {
  const Progress progress =
      progress_of(LaunchState{.phase = 2, .done = 70, .unsteadiness = 0.01, .run = 5}, Instant(3s));
  EXPECT_EQ(progress, (Progress{.source = ProgressSource::launches,
                                .unit = 2,
                                .run = 5,
                                .done = 70,
                                .time = Instant(3s),
                                .rate_uncertainty = 0.01}));
  EXPECT_EQ(launch_phase_name(1), "");
  EXPECT_EQ(launch_phase_name(2), "kernels 2");
}

// Of work that is no longer counted it is reported once that this is so.
TEST(Launches, ThatWorkIsNoLongerCountedIsNewsOnce) {
  LaunchCount count;
  LaunchCounts counts;
  Instant now{};
  const auto run = [&](std::uint64_t launches, int rounds) {
    std::vector<LaunchProgress> out;
    for (int i = 0; i < rounds; ++i) {
      now += 100ms;
      counts[1] += launches;
      if (auto progress = count.add(now, counts)) out.push_back(*std::move(progress));
    }
    return out;
  };
  const auto working = run(60, 20);
  ASSERT_GE(working.size(), 5u);
  EXPECT_TRUE(working.back().state);
  const auto idle = run(0, 200);
  EXPECT_EQ(std::count_if(idle.begin(), idle.end(), [](const auto& each) { return !each.state; }),
            1);
  EXPECT_FALSE(idle.back().state);
}

TEST(Launches, ARateIsThatOfItsWindow) {
  LaunchCount count;
  EXPECT_FALSE(count.end_window(Instant(0s), {.kernels = {{1, 10}}}));
  const auto rate =
      count.end_window(Instant(2s), {.kernels = {{1, 40}, {2, 10}}, .collectives = 3});
  ASSERT_TRUE(rate);
  EXPECT_EQ(rate->per_second, 20);
  EXPECT_EQ(rate->collectives, 3u);
  EXPECT_EQ(rate->mix.at(2), 0.25);
  EXPECT_FALSE(count.end_window(Instant(4s), {.kernels = {{1, 5}}}));  // another program's
}

}  // namespace
}  // namespace derate
