#include "lab/tenants/attribution.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

namespace derate {
namespace {

// Says of each tenant the energy that `watts` makes of its truth; the base takes what is left.
class Told : public SplitMethod {
 public:
  using Energy = std::function<double(const TenantTruth&)>;
  Told(const TenantWorld& world, Energy watts) : world_(world), watts_(std::move(watts)) {}

  PowerEstimate step(const AttribTick& tick) override {
    PowerEstimate out{.residual_to_base = Fraction(1)};
    for (const TenantTick& tenant : tick.tenants) {
      TenantEstimate one;
      for (const TenantTruth& truth : world_.truth())
        if (truth.key == tenant.key)
          one.dynamic = Watts(watts_(truth) / derate::seconds(tick.length));
      out.tenants.push_back(one);
    }
    return out;
  }

 private:
  const TenantWorld& world_;
  Energy watts_;
};

JudgedMethod told(const char* name, double part) {
  return {name, [part](const BoardFacts&, const TenantWorld& world) {
            return std::make_unique<Told>(world, [part](const TenantTruth& truth) {
              return part * truth.above_base.value();
            });
          }};
}

std::vector<AttributionScore> scores_of(const char* scenario, std::vector<JudgedMethod> methods,
                                        std::uint64_t seed = 1) {
  const AttributionRun run{
      .scenario = *find_tenant_scenario(scenario), .seed = seed, .length = std::chrono::minutes(6)};
  return *judge(run, methods);
}

Split split_of(const std::vector<std::int64_t>& joules) {
  Split out{.length = std::chrono::seconds(1)};
  for (std::size_t i = 0; i < joules.size(); ++i)
    out.tenants.push_back({.key = std::to_string(i), .dynamic_mj = joules[i] * 1000});
  return out;
}

std::vector<TenantTruth> truth_of(const std::vector<std::int64_t>& joules) {
  std::vector<TenantTruth> out;
  for (std::size_t i = 0; i < joules.size(); ++i)
    out.push_back({.key = std::to_string(i), .above_base = Joules(static_cast<double>(joules[i]))});
  return out;
}

std::vector<std::int64_t> any_joules() {
  return *rc::gen::container<std::vector<std::int64_t>>(4, rc::gen::inRange<std::int64_t>(0, 500));
}

// --- one tick ------------------------------------------------------------------------------------

// Where the sums agree, what is wrong is what one has too much, which is what others have too
// little.
RC_GTEST_PROP(Misattributed, IsWhatWouldHaveToChangeHands, ()) {
  const auto truth = any_joules();
  auto told_j = truth;
  for (int i = 0; i < 3; ++i) {
    const auto from = *rc::gen::inRange<std::size_t>(0, 4),
               to = *rc::gen::inRange<std::size_t>(0, 4);
    const auto moved = *rc::gen::inRange<std::int64_t>(0, told_j[from] + 1);
    told_j[from] -= moved;
    told_j[to] += moved;
  }
  double too_much = 0;
  for (std::size_t i = 0; i < 4; ++i)
    too_much += static_cast<double>(std::max<std::int64_t>(0, told_j[i] - truth[i]));
  const StretchScore score = misattributed(split_of(told_j), truth_of(truth));
  RC_ASSERT(std::abs(score.wrong_j - too_much) < 1e-9);
  RC_ASSERT(std::abs(score.true_j - static_cast<double>(std::accumulate(truth.begin(), truth.end(),
                                                                        std::int64_t{0}))) < 1e-9);
}

RC_GTEST_PROP(Misattributed, TheTruthIsNotWrong, ()) {
  const auto truth = any_joules();
  RC_ASSERT(misattributed(split_of(truth), truth_of(truth)).wrong_j == 0);
}

// Board 60 J in a second, base 20 W and context 4 W: 36 J above both. Two hold a context, so each
// gets 2 + 18 = 20 J; in truth it was 30 and 10. Wrong: (10 + 10) / 2 = 10 J of 40.
TEST(Misattributed, EqualSplitByHand) {
  const auto equal = (*find_split_method("equal"))->make({.base = Watts(20), .context = Watts(4)});
  AttribTick tick{.length = std::chrono::seconds(1), .energy_mj = 60'000};
  tick.tenants = {{.key = "0"}, {.key = "1"}};
  const auto split = allocate_energy(tick, equal->step(tick), IdleRule::unallocated);
  ASSERT_TRUE(split);
  const StretchScore score = misattributed(*split, truth_of({30, 10}));
  EXPECT_NEAR(score.wrong_j, 10, 1e-9);
  EXPECT_NEAR(score.share().value(), 0.25, 1e-9);
}

TEST(Misattributed, EnergyOfWhoIsNotThereIsWrong) {
  EXPECT_NEAR(misattributed(split_of({30, 10}), truth_of({30})).wrong_j, 5, 1e-9);
  EXPECT_NEAR(misattributed(split_of({30}), truth_of({30, 10})).wrong_j, 5, 1e-9);
}

TEST(Misattributed, NothingDrawnHasNoShare) {
  EXPECT_FALSE(misattributed(split_of({0, 0}), truth_of({0, 0})).share());
}

// --- a run ---------------------------------------------------------------------------------------

class JudgeIn : public testing::TestWithParam<const char*> {};

// Known answers: the truth 0; nothing to anyone, half of all; a part p of it, (1 - p) / 2. The
// slack: a millijoule a tenant and tick, and M's late counter, which at times shows less than is
// told.
TEST_P(JudgeIn, WhatIsToldHasTheScoreThatItMustHave) {
  const auto scores =
      scores_of(GetParam(), {told("truth", 1), told("nothing", 0), told("part", 0.8)});
  const double expected[] = {0, 0.5, 0.1};
  for (std::size_t i = 0; i < 3; ++i)
    for (const StretchScore* score :
         {&scores[i].minute, &scores[i].five_minutes, &scores[i].later}) {
      ASSERT_TRUE(score->share());
      EXPECT_NEAR(*score->share(), expected[i], 1e-3) << i;
    }
  EXPECT_LT(*scores[0].rmse_w(), 0.1);
  EXPECT_LT(*scores[0].mape(), 1e-3);
  EXPECT_NEAR(*scores[2].mape(), 0.2, 1e-3);
  ASSERT_FALSE(scores[2].worst.empty());
  EXPECT_NEAR(scores[2].worst[0], 0.2, 1e-3);
  EXPECT_FALSE(scores[0].coverage());  // it says nothing of how sure it is
}

INSTANTIATE_TEST_SUITE_P(All, JudgeIn, testing::Values("A", "M", "N", "P", "T"),
                         [](const auto& one) { return std::string(one.param); });

TEST(Judge, TwinsAreAlikeWhereTheTruthIsTold) {
  const auto scores = scores_of("T", {told("truth", 1), told("nothing", 0)});
  EXPECT_LT(scores[0].twins.value(), 1e-4);
  EXPECT_LT(scores[0].null_w, 1e-3);
  EXPECT_FALSE(scores_of("A", {told("truth", 1)})[0].twins);
}

// Half of the energy of one twin goes to the tenant without work.
TEST(Judge, TwinsThatDifferAndTheNullTenantAreSeen) {
  const JudgedMethod unfair{"unfair", [](const BoardFacts&, const TenantWorld& world) {
                              return std::make_unique<Told>(world, [&](const TenantTruth& truth) {
                                const double first = world.truth()[0].above_base.value();
                                if (truth.key == "instance 1") return first / 2;
                                if (truth.key == "instance 4") return first / 2;
                                return truth.above_base.value();
                              });
                            }};
  const auto scores = scores_of("T", {unfair});
  EXPECT_NEAR(scores[0].twins.value(), 0.5, 1e-3);
  EXPECT_GT(scores[0].null_w, 10);
}

class EveryMethod : public testing::TestWithParam<const char*> {};

// Accounts and tenants add up in every tick, and every tick is judged: all but the first, and those
// that were lost.
TEST_P(EveryMethod, AddsUpToTheCounter) {
  const TenantScenario& scenario = **find_tenant_scenario(GetParam());
  const auto methods = judged_methods(scenario);
  ASSERT_TRUE(methods.ok());
  const auto scores = scores_of(GetParam(), *methods, 5);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i].unsettled_mj, 0) << (*methods)[i].name;
    EXPECT_LE(scores[i].ticks, 359);
    EXPECT_GE(scores[i].ticks, scenario.lost > 0 ? 330 : 359);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryMethod, testing::Values("F", "M", "P"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace derate
