#include "service/answers/recommendation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/sim/sim_device.h"

namespace derate {
namespace {

constexpr double kDeltas[] = {0.05, 0.1, 0.2};
constexpr double kStep = 60;

Capability v100() {
  FakeClock clock;
  SimGpu gpu(**find_sim_chip("V100-SXM2"), {});
  return SimDevice(gpu, clock, 0, 1).capability();
}

NumberColumn column(std::size_t steps, std::optional<double> value) {
  return std::vector<std::optional<double>>(steps, value);
}

// Minutes of one work at one clock.
struct Minutes {
  std::string policy;
  std::size_t steps = 60;
  double clock = 1530, gpu = 1, memory = 0.6, watts = 240;
};
HistorySeriesView series(const Minutes& of) {
  HistorySeriesView out{.gpu = "GPU-1", .kind = "gpu", .policy = of.policy};
  for (std::size_t i = 0; i < of.steps; ++i) {
    out.begin_unix_seconds.push_back(static_cast<std::int64_t>(60 * i));
    out.covered_ratio.push_back(1);
  }
  out.energy_joules = column(of.steps, of.watts * kStep);
  out.power_watts = column(of.steps, of.watts);
  out.sm_clock_mhz = column(of.steps, of.clock);
  out.gpu_utilisation_ratio = column(of.steps, of.gpu);
  out.memory_utilisation_ratio = column(of.steps, of.memory);
  return out;
}

Recommendation said_of(const std::vector<HistorySeriesView>& all) {
  const auto out = recommend(all, kStep, v100(), kDeltas);
  EXPECT_TRUE(out.ok());
  return *out;
}

TEST(Recommendation, TellsWhatPromisesWouldHaveComeTo) {
  const Recommendation said = said_of({series({.policy = ""})});
  EXPECT_EQ(said.at_work, std::chrono::hours(1));
  EXPECT_EQ(said.told, std::chrono::hours(1));
  EXPECT_NEAR(said.told_at_highest.value(), 240 * 3600, 1);
  ASSERT_EQ(said.outcomes.size(), 3u);
  for (const PromiseOutcome& each : said.outcomes) {
    EXPECT_LE(each.saving.low, each.saving.mean);
    EXPECT_LT(each.loss.mean, each.delta + 0.02);
    EXPECT_GE(each.loss.low, 0);
  }
  ASSERT_TRUE(said.best);
  EXPECT_GT(said.outcomes[*said.best].saving.low, 0);
}

// Two works are told of each by itself, and come together by their energy and time.
TEST(Recommendation, AddsWorksUp) {
  const Minutes light{.policy = "", .memory = 0.95, .watts = 200},
      heavy{.policy = "", .memory = 0.1};
  const Recommendation a = said_of({series(light)}), b = said_of({series(heavy)}),
                       both = said_of({series(light), series(heavy)});
  for (std::size_t i = 0; i < both.outcomes.size(); ++i) {
    const double saved = a.outcomes[i].saving.mean * a.told_at_highest.value() +
                         b.outcomes[i].saving.mean * b.told_at_highest.value();
    EXPECT_NEAR(both.outcomes[i].saving.mean, saved / both.told_at_highest.value(), 1e-9);
    EXPECT_NEAR(both.outcomes[i].loss.mean, (a.outcomes[i].loss.mean + b.outcomes[i].loss.mean) / 2,
                1e-9);
  }
}

TEST(Recommendation, SaysNothingOfIdleTimeNorOfClocksThatSomebodySet) {
  const Recommendation said =
      said_of({series({.policy = "", .gpu = 0}), series({.policy = "", .clock = 1200})});
  EXPECT_EQ(said.covered, std::chrono::hours(2));
  EXPECT_EQ(said.at_work, std::chrono::hours(1));
  EXPECT_EQ(said.told, Duration::zero());
  EXPECT_TRUE(said.outcomes.empty());
  EXPECT_FALSE(said.best);
}

TEST(Recommendation, TellsWhatAPolicyHasSavedAndLost) {
  HistorySeriesView governed = series({.policy = "assure", .clock = 1200, .watts = 180});
  governed.saved_of_joules = column(60, 180 * kStep);
  governed.saved_joules = column(60, 60 * kStep);
  governed.saved_low_joules = column(60, 45 * kStep);
  governed.saved_high_joules = column(60, 75 * kStep);
  governed.performance_ratio = column(60, 0.93);
  governed.promised_performance_ratio = column(60, 0.9);
  governed.broken_seconds = column(60, 0.5);
  const Recommendation said = said_of({governed});
  ASSERT_EQ(said.governed.size(), 1u);
  const GovernedTime& time = said.governed[0];
  EXPECT_EQ(time.policy, "assure");
  EXPECT_EQ(time.time, std::chrono::hours(1));
  ASSERT_TRUE(time.saving);
  EXPECT_NEAR(time.saving->mean, 0.25, 1e-9);
  EXPECT_NEAR(time.saving->low, 0.2, 1e-9);
  EXPECT_NEAR(time.performance->value(), 0.93, 1e-9);
  EXPECT_NEAR(seconds(time.broken), 30, 1e-9);
}

// What was held says most: a promise of about what was lost saves about what was saved.
TEST(Recommendation, TellsOfOtherPromisesByWhatWasHeld) {
  HistorySeriesView governed = series({.policy = "assure", .clock = 1200, .watts = 180});
  governed.saved_of_joules = column(60, 180 * kStep);
  governed.saved_joules = column(60, 60 * kStep);
  governed.performance_ratio = column(60, 0.925);
  const Recommendation said = said_of({governed});
  EXPECT_EQ(said.told, std::chrono::hours(1));
  EXPECT_NEAR(said.told_at_highest.value(), 240 * 3600, 1);
  ASSERT_EQ(said.outcomes.size(), 3u);
  EXPECT_NEAR(said.outcomes[1].loss.mean, 0.075, 0.01);
  EXPECT_NEAR(said.outcomes[1].saving.mean, 0.25, 0.03);
  EXPECT_LT(said.outcomes[0].saving.mean, 0.23);
  EXPECT_GT(said.outcomes[2].saving.mean, said.outcomes[1].saving.mean);
}

// Of a policy that does not know how the work performs nothing is told.
TEST(Recommendation, SaysNothingOfWhatNobodyEstimated) {
  const Recommendation said = said_of({series({.policy = "geepafs", .clock = 1200})});
  ASSERT_EQ(said.governed.size(), 1u);
  EXPECT_FALSE(said.governed[0].saving);
  EXPECT_TRUE(said.outcomes.empty());
}

// A column that is missing is no column of zeros.
TEST(Recommendation, GoesOnWithoutColumns) {
  HistorySeriesView bare = series({.policy = ""});
  bare.memory_utilisation_ratio.reset();
  EXPECT_FALSE(said_of({bare}).outcomes.empty());
  bare.energy_joules.reset();
  EXPECT_TRUE(said_of({bare}).outcomes.empty());
  bare.gpu_utilisation_ratio.reset();
  EXPECT_EQ(said_of({bare}).at_work, Duration::zero());
}

}  // namespace
}  // namespace derate
