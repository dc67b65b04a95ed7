#include "lab/launch_feed.h"

#include <gtest/gtest.h>

#include "device/sim/test_sim.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// Launches of one kernel at an even pace.
LaunchRecording recording_of(std::uint64_t kernel, std::uint64_t per_second) {
  LaunchRecording out;
  for (std::uint64_t i = 0; i <= 40; ++i)
    out.rows.push_back({.at = 100ms * static_cast<std::int64_t>(i),
                        .steps = static_cast<double>(i),
                        .counts = {{kernel, i * per_second / 10}}});
  return out;
}

double launches_of(const LaunchCounts& counts, std::uint64_t kernel) {
  const auto at = counts.find(kernel);
  return at == counts.end() ? 0 : static_cast<double>(at->second);
}

const LaunchRecording kOne = recording_of(1, 10000), kOther = recording_of(2, 10000);
const LaunchRecording* const kBoth[] = {&kOne, &kOther};

Workload pair_of_phases(double spread) {
  const SimChip& chip = chip_named("V100-SXM2");
  Workload out = steady_work(chip, 100);
  out.phases.push_back(out.phases.front());
  out.phases[0].work = 300ms;
  out.phases[1].work = 500ms;
  out.spread = {.share = spread, .seed = 7};
  return out;
}

// The counts at a place of the work are the same after any number of reads before it.
TEST(LaunchFeed, DoesNotDependOnHowOftenItIsRead) {
  const Workload work = pair_of_phases(1);
  const LaunchWork drifts{
      .drift = 0.5, .drift_over = 20s, .wave = 0.1, .random = 0.3, .sorted = 0.2};
  LaunchFeed often(kBoth, drifts, 3), seldom(kBoth, drifts, 3);
  for (int i = 1; i <= 6000; ++i) (void)often.at(work, 5ms * i);
  const LaunchCounts a = often.at(work, 30s), b = seldom.at(work, 30s);
  for (const std::uint64_t kernel : {1U, 2U}) {
    EXPECT_NEAR(launches_of(a, kernel), launches_of(b, kernel), 2);
    EXPECT_GT(launches_of(a, kernel), 5e4);
  }
}

// Each phase has launched what was done in it, also where its length is drawn.
TEST(LaunchFeed, PhasesOfAnyLengthLaunchTheirOwn) {
  const Workload work = pair_of_phases(1);
  LaunchFeed feed(kBoth, {}, 3);
  double boundary = 0, of_phase[] = {0, 0};
  for (std::uint64_t number = 0; number < 100; ++number) {
    const double length = phase_length(work, number);
    boundary += length;
    of_phase[number % 2] += length;
    const LaunchCounts counts = feed.at(work, from_seconds(boundary));
    // To a cell of 10 ms for each phase that has ended, which is as often too much as too little.
    EXPECT_NEAR(launches_of(counts, 1), 1e4 * of_phase[0], 1e4 * 0.1);
    EXPECT_NEAR(launches_of(counts, 2), 1e4 * of_phase[1], 1e4 * 0.1);
  }
}

// Without an axis, launches are those of the recording, digit for digit.
TEST(LaunchFeed, FixedPhasesAreThoseOfTheRecording) {
  const Workload work = pair_of_phases(0);
  LaunchFeed feed(kBoth, {}, 3);
  EXPECT_EQ(feed.at(work, 200ms), (LaunchCounts{{1, 2000}}));
  EXPECT_EQ(feed.at(work, 700ms), (LaunchCounts{{1, 3000}, {2, 4000}}));
  EXPECT_EQ(feed.at(work, 900ms), (LaunchCounts{{1, 4000}, {2, 5000}}));
}

// Work that turns into other work launches both by their shares of the mixture.
TEST(LaunchFeed, AChangeMixesLaunches) {
  Workload work = pair_of_phases(0);
  work.change = {.begins = 10s, .lasts = 20s};
  LaunchFeed feed(kBoth, {}, 3);
  EXPECT_NEAR(launches_of(feed.at(work, 10s), 1), 1e5, 10);
  const LaunchCounts middle = feed.at(work, 20s);
  EXPECT_NEAR(launches_of(middle, 1), 1e5 + 7.5e4, 100);
  EXPECT_NEAR(launches_of(middle, 2), 2.5e4, 100);
  EXPECT_NEAR(launches_of(feed.at(work, 40s), 2), 1e5 + 1e5, 100);
}

}  // namespace
}  // namespace derate
