#include "attrib/training.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attrib/test_ticks.h"

namespace derate {
namespace {

const BoardFacts kTrainedBoard{.highest_clock = Megahertz(2000)};

double watts_of(const PowerFeatures& watts, const TrainingPoint& point) {
  double out = 0;
  const PowerFeatures features =
      power_features(point.activity, point.share, point.memory_share,
                     core_scale(point.clock, kTrainedBoard.highest_clock));
  for (std::size_t j = 0; j < kPowerFeatures; ++j) out += watts[j] * features[j];
  return out;
}

// Points of a chip that is linear in the features, at any activity, clock and share.
TrainingRun linear_run(const char* workload, const PowerFeatures& watts, bool instance) {
  TrainingRun run{.workload = workload};
  for (int i = 0; i < 60; ++i) {
    TrainingPoint point{.activity = any_activity([] { return Fraction(any_share()); }),
                        .clock = Megahertz(*rc::gen::inRange(500, 2001)),
                        .instance = instance};
    if (instance) point.share = point.memory_share = Fraction(*rc::gen::inRange(1, 8) / 7.0);
    point.above_idle = Watts(watts_of(watts, point));
    run.points.push_back(point);
  }
  return run;
}

PowerFeatures any_watts() {
  PowerFeatures out{};
  for (double& one : out) one = *rc::gen::inRange(0, 400);
  return out;
}

// What the model says of one tenant with counters.
double says(SplitMethod& method, const TenantTick& tenant) {
  AttribTick tick{.length = std::chrono::seconds(1), .sm_clock = Megahertz(1500)};
  tick.tenants = {tenant};
  return method.step(tick).tenants[0].dynamic.value();
}

TenantTick tenant_at(const char* key, const TrainingPoint& point) {
  return {.key = key,
          .signal = SignalKind::instance_activity,
          .share = point.share,
          .memory_share = point.memory_share,
          .activity = point.activity};
}

// A tenant on part of the GPU, and the point that it would be in training.
TrainingPoint any_point() {
  return {.activity = any_activity([] { return Fraction(any_share()); }),
          .clock = Megahertz(1500),
          .share = Fraction(*rc::gen::inRange(1, 8) / 7.0),
          .memory_share = Fraction(*rc::gen::inRange(1, 9) / 8.0)};
}

// 60 random points are well conditioned; a millionth of a watt is far above rounding.
RC_GTEST_PROP(OfflineLinear, FindsTheChipWhereItIsLinear, ()) {
  const PowerFeatures truth = any_watts();
  std::vector<TrainingRun> runs{linear_run("a", truth, false)};
  runs.push_back(linear_run("b", any_watts(), true));  // on an instance: not for this method
  const auto method = make_offline_linear(kTrainedBoard, runs);
  const TrainingPoint point = any_point();
  RC_ASSERT(std::abs(says(*method, tenant_at("x", point)) - watts_of(truth, point)) < 1e-6);
  for (const double watts : fit_linear_power(runs, kTrainedBoard.highest_clock))
    RC_ASSERT(watts >= 0);
}

RC_GTEST_PROP(WorkloadModels, HaveEachWorkloadsOwnWatts, ()) {
  const PowerFeatures whole = any_watts(), hot = any_watts(), cool = any_watts();
  const std::vector<TrainingRun> runs{linear_run("hot", whole, false), linear_run("hot", hot, true),
                                      linear_run("cool", cool, true),
                                      linear_run("whole only", whole, false)};
  const auto method = make_workload_models(kTrainedBoard, runs, [](std::string_view key) {
    return std::string(key == "1" ? "hot" : key == "2" ? "cool" : key == "3" ? "whole only" : "");
  });
  const TrainingPoint point = any_point();
  const auto error = [&](const char* key, const PowerFeatures& truth) {
    return std::abs(says(*method, tenant_at(key, point)) - watts_of(truth, point));
  };
  RC_ASSERT(error("1", hot) < 1e-6);
  RC_ASSERT(error("2", cool) < 1e-6);
  RC_ASSERT(error("3", whole) < 1e-6);
  RC_ASSERT(error("4", whole) < 1e-6);
}

// Levels of one load on the whole GPU: the trees know them, and know a slice only as the lowest.
TEST(OfflineTrees, KnowTheWholeGpuAndLittleOfSlices) {
  TrainingRun run{.workload = "gemm"};
  for (int i = 1; i <= 100; ++i)
    run.points.push_back({.activity = {.sm = Fraction(i / 100.0)},
                          .clock = Megahertz(2000),
                          .above_idle = Watts(4.0 * i)});
  const auto method = make_offline_trees({}, std::span(&run, 1));
  const double clock = core_scale(Megahertz(1500), Megahertz(2000));
  TrainingPoint point{.activity = {.sm = Fraction(0.8)}};
  EXPECT_NEAR(says(*method, tenant_at("whole", point)), 320 * clock, 4);
  point.share = Fraction(0.001);
  EXPECT_GT(says(*method, tenant_at("sliver", point)), 4);  // 0.32 W in truth
}

TEST(OfflineTrees, AreNeverNegative) {
  TrainingRun run{.workload = "noise"};
  for (int i = 0; i < 20; ++i) run.points.push_back({.above_idle = Watts(-3)});
  const auto method = make_offline_trees({}, std::span(&run, 1));
  EXPECT_EQ(says(*method, {.key = "a"}), 0);
}

TEST(Training, WithoutPointsNobodyDrawsAnything) {
  const TrainingRun empty{.workload = "none"};
  const TenantTick busy = tenant_at("a", {.activity = {.sm = Fraction(1)}});
  const auto nobody = [](std::string_view) { return std::string("none"); };
  EXPECT_EQ(says(*make_offline_linear({}, {}), busy), 0);
  EXPECT_EQ(says(*make_offline_trees({}, std::span(&empty, 1)), busy), 0);
  EXPECT_EQ(says(*make_workload_models({}, std::span(&empty, 1), nobody), busy), 0);
}

// Without a clock told, the runs' highest is the one that watts are for.
TEST(Training, TheHighestClockIsTheRunsWhereNoneIsTold) {
  TrainingRun run{.workload = "a"};
  for (const double mhz : {500.0, 1500.0})
    run.points.push_back({.activity = {.sm = Fraction(1)},
                          .clock = Megahertz(mhz),
                          .above_idle = Watts(300 * std::pow(mhz / 1500, 2.2))});
  const auto method = make_offline_linear({}, std::span(&run, 1));
  EXPECT_NEAR(says(*method, tenant_at("x", {.activity = {.sm = Fraction(1)}})), 300, 1e-9);
}

TEST(ExactCurve, IsTheTruthAtTheClockThatIsKnown) {
  const auto truth = [](const TenantTick& tenant, Megahertz clock) {
    return Watts(clock.value() * tenant.share.value());
  };
  AttribTick tick;
  tick.tenants = {{.key = "a", .share = Fraction(0.25)}};
  EXPECT_EQ(dynamic_watts(make_exact_curve({}, truth)->step(tick)), std::vector{0.0});
  const auto method = make_exact_curve(kTrainedBoard, truth);
  EXPECT_EQ(dynamic_watts(method->step(tick)), std::vector{500.0});
  tick.sm_clock = Megahertz(1000);
  EXPECT_EQ(dynamic_watts(method->step(tick)), std::vector{250.0});
  tick.sm_clock = {};
  EXPECT_EQ(dynamic_watts(method->step(tick)), std::vector{250.0});
}

}  // namespace
}  // namespace derate
