#include "policy/assure/loss_shares.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

struct Whole {
  double work = 0, time = 0, energy = 0;
};

Whole whole_of(const std::vector<PhaseCosts>& phases, const std::vector<std::size_t>& clocks) {
  Whole out;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    out.work += phases[i].work;
    out.time += phases[i].work * phases[i].time[clocks[i]];
    out.energy += phases[i].work * phases[i].energy[clocks[i]];
  }
  return out;
}

PhaseCosts arbitrary_phase(int clocks) {
  PhaseCosts out{.work = *rc::gen::inRange(1, 100) / 10.0};
  double time = 1, energy = *rc::gen::inRange(50, 300);
  for (int i = 0; i < clocks; ++i) {
    out.time.insert(out.time.begin(), time);
    out.energy.insert(out.energy.begin(), energy);
    time += *rc::gen::inRange(0, 50) / 1000.0;
    energy += *rc::gen::inRange(-20, 5);
  }
  return out;
}

// No other choice that takes no longer needs less energy; and the promise is kept where the
// quickest clocks keep it.
RC_GTEST_PROP(ShareLoss, IsBestOfAllThatTakeNoLonger, ()) {
  const int clocks = *rc::gen::inRange(1, 9);
  const std::vector<PhaseCosts> phases = {arbitrary_phase(clocks), arbitrary_phase(clocks),
                                          arbitrary_phase(clocks)};
  const double longest = 1 + *rc::gen::inRange(0, 300) / 1000.0;
  const Whole chosen = whole_of(phases, share_loss(phases, longest));
  RC_ASSERT(chosen.time <= longest * chosen.work + 1e-9);
  std::vector<std::size_t> other(3);
  const auto count = static_cast<std::size_t>(clocks);
  for (other[0] = 0; other[0] < count; ++other[0])
    for (other[1] = 0; other[1] < count; ++other[1])
      for (other[2] = 0; other[2] < count; ++other[2]) {
        const Whole one = whole_of(phases, other);
        if (one.time <= chosen.time) RC_ASSERT(one.energy >= chosen.energy - 0.1);
      }
}

TEST(ShareLoss, GivesTheLossToThePhaseThatSavesMostForIt) {
  const PhaseCosts dear{.work = 1, .time = {1.2, 1.1, 1}, .energy = {160, 180, 220}};
  const PhaseCosts cheap{.work = 1, .time = {1.2, 1.1, 1}, .energy = {48, 49, 50}};
  EXPECT_EQ(share_loss(std::vector{dear, cheap}, 1.1), (std::vector<std::size_t>{0, 2}));
}

TEST(ShareLoss, WhatCannotBeKeptRunsAtTheQuickest) {
  const PhaseCosts phase{.work = 1, .time = {1.3, 1.2}, .energy = {40, 50}};
  EXPECT_EQ(share_loss(std::vector{phase, phase}, 1.1), (std::vector<std::size_t>{1, 1}));
}

}  // namespace
}  // namespace derate
