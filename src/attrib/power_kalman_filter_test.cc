#include "attrib/power_kalman_filter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "attrib/watt_priors.h"

namespace derate {
namespace {

using Observation = PowerKalmanFilter::Observation;
using Random = std::mt19937_64;

constexpr std::size_t kShared = 7 + kPowerFeatures;  // states that all tenants have in common

// A board as the filter believes boards to be, without loss, wake and bend.
struct Board {
  double base = 70, context = 45;
  PowerFeatures units{300, 500, 200, 250, 80, 150};
  std::map<std::string, double> gain = {};  // of a tenant, 1 where there is none

  double tenant(const PowerKalmanFilter::Tenant& tenant) const {
    double out = 0;
    for (std::size_t i = 0; i < kPowerFeatures; ++i) out += units[i] * tenant.features[i];
    const auto own = gain.find(tenant.key);
    return out * (own != gain.end() ? own->second : 1);
  }
  double power(const Observation& scene) const {
    double out = base + (scene.context ? context * scene.core_factor : 0);
    for (const auto& one : scene.tenants) out += tenant(one);
    return out;
  }
};

// Of the H200 without what is not linear.
WattPrior linear_prior() {
  WattPrior out = watt_prior({.chip = "H200"});
  out.loss = out.wake = out.bend = {0, 1e-6};
  return out;
}

PowerKalmanFilter linear_filter() { return PowerKalmanFilter(linear_prior(), {}); }

PowerKalmanFilter::Tenant tenant(const std::string& key, Random& random, double share = 0.25) {
  std::uniform_real_distribution<double> any(0, 1);
  PowerKalmanFilter::Tenant out{.key = key, .share = share, .memory_share = share};
  for (double& feature : out.features) feature = share * any(random);
  return out;
}

Observation scene_of(int tenants, Random& random) {
  Observation out{.context = tenants > 0};
  for (int k = 0; k < tenants; ++k) out.tenants.push_back(tenant(std::to_string(k), random));
  return out;
}

void learn(PowerKalmanFilter& filter, const Observation& scene, double board_w) {
  filter.advance(scene);
  filter.learn(scene, board_w);
}

// Largest error of a tenant's watts over 50 scenes that it never saw.
double worst_error(const PowerKalmanFilter& filter, const Board& board, int tenants,
                   Random& random) {
  double out = 0;
  for (int i = 0; i < 50; ++i) {
    const Observation scene = scene_of(tenants, random);
    const auto told = filter.estimate(scene);
    for (std::size_t k = 0; k < told.tenants.size(); ++k)
      out = std::max(out, std::abs(told.tenants[k].mean - board.tenant(scene.tenants[k])));
  }
  return out;
}

TEST(PowerKalmanFilter, FindsTheUnitsWattsWithoutNoise) {
  Random random(1);
  const Board board;
  PowerKalmanFilter filter = linear_filter();
  EXPECT_GT(worst_error(filter, board, 4, random), 20);  // the prior's, of up to 370 W
  for (int i = 0; i < 600; ++i) {
    const Observation scene = scene_of(4, random);
    learn(filter, scene, board.power(scene));
  }
  EXPECT_LT(worst_error(filter, board, 4, random), 2);
}

// 5 W of noise, 1 % of the mean power: after 30 minutes each of the tenants' 24 units' sums is
// known to about the noise over the root of what is not forgotten, some 300 ticks.
TEST(PowerKalmanFilter, FindsWhoDrawsMoreThanItsCountersUnderNoise) {
  Random random(2);
  std::normal_distribution<double> noise(0, 5);
  Board board;
  board.gain = {{"0", 1.3}, {"1", 0.75}};
  PowerKalmanFilter filter = linear_filter();
  for (int i = 0; i < 1800; ++i) {
    const Observation scene = scene_of(4, random);
    learn(filter, scene, board.power(scene) + noise(random));
  }
  EXPECT_LT(worst_error(filter, board, 4, random), 15);
  const Observation scene = scene_of(4, random);
  const auto told = filter.estimate(scene);
  for (std::size_t k = 0; k < 4; ++k)
    EXPECT_LT(std::abs(told.tenants[k].mean - board.tenant(scene.tenants[k])),
              5 * told.tenants[k].sd);
}

TEST(PowerKalmanFilter, WithoutTenantsItLearnsTheBase) {
  PowerKalmanFilter filter = linear_filter();
  for (int i = 0; i < 300; ++i) learn(filter, {}, 63);
  EXPECT_NEAR(filter.estimate({}).base, 63, 0.2);
  // And with a parked context the step.
  const Observation parked{.tenants = {{.key = "a"}}, .context = true};
  for (int i = 0; i < 300; ++i) learn(filter, parked, 63 + 28);
  EXPECT_NEAR(filter.estimate(parked).base + filter.estimate(parked).context, 91, 0.2);
  EXPECT_NEAR(filter.estimate(parked).context, 28, 3);
  EXPECT_EQ(filter.estimate(parked).tenants[0].mean, 0);
}

// Work that draws by the clock's power of 1.4 and of 3, where the features assume 2.2; and a
// context that the clock does not change.
TEST(PowerKalmanFilter, TheClocksExponentIsLearned) {
  for (const double exponent : {1.4, 3.0}) {
    Random random(3);
    std::uniform_real_distribution<double> any(0.5, 1);
    PowerKalmanFilter filter = linear_filter();
    Board board;
    double off = 0, truth = 0;
    for (int i = 0; i < 900; ++i) {
      const double clock = any(random);
      Observation scene = scene_of(2, random);
      scene.core_factor = std::pow(clock, kClockExponent);
      double power = board.base + board.context;
      std::vector<double> own;
      for (auto& one : scene.tenants) {
        const double dram = board.units.back() * one.features.back();
        const double cores = board.tenant(one) - dram;
        own.push_back(cores * std::pow(clock, exponent) + dram);
        power += own.back();
        for (std::size_t k = 0; k + 1 < kPowerFeatures; ++k) one.features[k] *= scene.core_factor;
      }
      learn(filter, scene, power);
      if (i < 600) continue;
      const auto now = filter.estimate(scene);
      for (std::size_t k = 0; k < 2; ++k)
        off += std::abs(now.tenants[k].mean - own[k]), truth += own[k];
    }
    EXPECT_LT(off, 0.08 * truth) << exponent;
  }
}

TEST(PowerKalmanFilter, ATenantThatLeavesIsForgotten) {
  Random random(3);
  Board board;
  board.gain = {{"0", 1.4}};
  PowerKalmanFilter filter = linear_filter();
  for (int i = 0; i < 300; ++i) {
    const Observation scene = scene_of(3, random);
    learn(filter, scene, board.power(scene));
  }
  EXPECT_EQ(filter.states(), kShared + 3 * kPowerFeatures);
  Observation fresh = scene_of(1, random);
  const auto known = filter.estimate(fresh).tenants[0];
  learn(filter, {}, board.base);
  EXPECT_EQ(filter.states(), kShared);
  filter.advance(fresh);
  const auto begun = filter.estimate(fresh).tenants[0];
  EXPECT_GT(begun.sd, 3 * known.sd);
  EXPECT_LT(begun.mean, 0.9 * known.mean);  // its own 40 % are gone, the units' watts stay
}

TEST(PowerKalmanFilter, FullDoubtBeginsATenantAnew) {
  Random random(4);
  Board board;
  board.gain = {{"0", 1.4}};
  PowerKalmanFilter filter = linear_filter(), other = linear_filter();
  for (int i = 0; i < 300; ++i) {
    const Observation scene = scene_of(2, random);
    for (PowerKalmanFilter* one : {&filter, &other}) learn(*one, scene, board.power(scene));
  }
  Observation scene = scene_of(2, random);
  const auto before = filter.estimate(scene);
  // As if it had left and come again.
  Observation without = scene;
  without.tenants.erase(without.tenants.begin());
  without.seconds = scene.seconds = 0;
  other.advance(without);
  other.advance(scene);
  scene.tenants[0].doubt = 1;
  filter.advance(scene);
  const auto doubted = filter.estimate(scene), anew = other.estimate(scene);
  EXPECT_NEAR(doubted.tenants[0].mean, anew.tenants[0].mean, 1e-9);
  EXPECT_NEAR(doubted.tenants[0].sd, anew.tenants[0].sd, 1e-9);
  EXPECT_GT(doubted.tenants[0].sd, 2 * before.tenants[0].sd);
  EXPECT_NEAR(doubted.tenants[1].sd, before.tenants[1].sd, 1e-9);
}

RC_GTEST_PROP(WattFilterProperty, AgeAndDoubtMakeNobodySurer, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  PowerKalmanFilter filter = linear_filter();
  const Board board;
  for (int i = *rc::gen::inRange(0, 30); i > 0; --i) {
    const Observation scene = scene_of(2, random);
    learn(filter, scene, board.power(scene));
  }
  Observation scene = scene_of(2, random);
  filter.advance(scene);
  auto before = filter.estimate(scene);
  for (int i = 0; i < 10; ++i) {
    scene.seconds = *rc::gen::inRange(0, 100'000);
    scene.tenants[0].doubt = *rc::gen::inRange(0, 100) / 100.0;
    filter.advance(scene);
    const auto after = filter.estimate(scene);
    for (std::size_t k = 0; k < 2; ++k) {
      RC_ASSERT(after.tenants[k].mean == before.tenants[k].mean);
      RC_ASSERT(after.tenants[k].sd >= before.tenants[k].sd * (1 - 1e-9));
      // However long: a tenth of what a lifetime of random walk would come to.
      RC_ASSERT(after.tenants[k].sd < 10 * after.tenants[k].prior_sd);
    }
    before = after;
  }
}

RC_GTEST_PROP(WattFilterProperty, NobodyEverGivesPowerBack, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  PowerKalmanFilter filter(watt_prior({}), {});
  for (int i = 0; i < 40; ++i) {
    Observation scene = scene_of(*rc::gen::inRange(0, 4), random);
    scene.core_factor = *rc::gen::inRange(1, 101) / 100.0;
    scene.capped = *rc::gen::inRange(0, 101) / 100.0;
    filter.advance(scene);
    const double said = filter.learn(scene, *rc::gen::inRange(-500, 2000));
    RC_ASSERT(std::isfinite(said));
    const auto told = filter.estimate(scene);
    RC_ASSERT((told.base >= 0 && told.context >= 0));
    for (const auto& watts : told.tenants)
      RC_ASSERT((std::isfinite(watts.mean) && watts.mean >= 0 && std::isfinite(watts.sd)));
  }
}

// A board that says that a busy unit saves watts is not believed.
TEST(PowerKalmanFilter, ABusierUnitDrawsNoLess) {
  Random random(7);
  Board board;
  board.units[1] = -300;
  PowerKalmanFilter filter = linear_filter();
  for (int i = 0; i < 300; ++i) {
    Observation scene = scene_of(2, random);
    learn(filter, scene, board.power(scene));
    const double before = filter.estimate(scene).tenants[0].mean;
    scene.tenants[0].features[1] += 0.1;
    ASSERT_GE(filter.estimate(scene).tenants[0].mean, before - 1e-6) << i;
  }
}

// Rounding adds up over days: 200 000 ticks are more than two.
TEST(PowerKalmanFilter, StaysACovarianceThroughChurn) {
  Random random(5);
  std::normal_distribution<double> noise(0, 4);
  const Board board;
  PowerKalmanFilter filter(watt_prior({.chip = "H200"}), {});
  std::vector<int> here{0, 1, 2};
  double least = 1e9;
  int next = 3;
  for (int i = 0; i < 200'000; ++i) {
    if (random() % 30 == 0 && here.size() > 0) here.erase(here.begin());
    if (random() % 30 == 0 && here.size() < 5) here.push_back(next++);
    Observation scene{.context = !here.empty()};
    for (const int k : here) scene.tenants.push_back(tenant(std::to_string(k), random));
    learn(filter, scene, std::max(0.0, board.power(scene) + noise(random)));
    ASSERT_EQ(filter.states(), kShared + here.size() * kPowerFeatures);
    least = std::min(least, filter.least_variance());
  }
  EXPECT_GE(least, 0);
  EXPECT_LT(worst_error(filter, board, 1, random), 40);  // a tenant that it never saw, of 370 W
}

// One reading ten times too high, by how far it moves beliefs that are well known and new ones.
TEST(PowerKalmanFilter, OutliersDoNotWreckIt) {
  Random random(6);
  std::normal_distribution<double> noise(0, 3);
  const Board board;
  PowerKalmanFilter filter = linear_filter();
  const auto run = [&](int ticks, int every) {
    for (int i = 0; i < ticks; ++i) {
      const Observation scene = scene_of(3, random);
      const double watts = board.power(scene) + noise(random);
      learn(filter, scene, every > 0 && i % every == 0 ? 10 * watts : watts);
    }
  };
  run(20, 0);
  const double few = worst_error(filter, board, 3, random);
  run(1, 1);
  EXPECT_LT(worst_error(filter, board, 3, random), few + 25);
  run(600, 0);
  run(600, 20);
  EXPECT_LT(worst_error(filter, board, 3, random), 40);
  run(300, 0);
  EXPECT_LT(worst_error(filter, board, 3, random), 12);
}

}  // namespace
}  // namespace derate
