#include "attrib/watt_priors.h"

#include <gtest/gtest.h>

#include "core/chip_facts.h"

namespace derate {
namespace {

constexpr const char* kMeasured[] = {"H200", "H100-SXM5", "A100-SXM4", "V100-SXM2"};

TEST(WattPrior, OfEveryChipIsPositiveAndUnsure) {
  for (const ChipFacts& chip : chip_facts()) {
    const WattPrior prior = watt_prior({.chip = chip.chip});
    for (const Belief* belief : {&prior.base, &prior.context, &prior.loss, &prior.wake}) {
      EXPECT_GT(belief->mean, 0) << chip.chip;
      EXPECT_GT(belief->sd, 0) << chip.chip;
    }
    for (const Belief& unit : prior.units) {
      EXPECT_GT(unit.mean, 0) << chip.chip;
      EXPECT_GE(unit.sd, unit.mean / 2) << chip.chip;
    }
  }
}

// A chip's name that chip_facts() writes otherwise would fall to the unknown's belief unseen.
TEST(WattPrior, KnowsItsChipsByTheirNames) {
  const WattPrior unknown = watt_prior({.chip = "RTX-9090"});
  for (const char* chip : kMeasured) {
    EXPECT_NE(facts_of_chip(chip), nullptr) << chip;
    EXPECT_EQ(std::string(facts_of_chip(chip)->chip), chip);
    const WattPrior prior = watt_prior({.chip = chip});
    EXPECT_LT(prior.base.sd, unknown.base.sd) << chip;
    for (std::size_t i = 0; i < kPowerFeatures; ++i)
      EXPECT_LT(prior.units[i].sd / prior.units[i].mean,
                unknown.units[i].sd / unknown.units[i].mean);
  }
}

TEST(WattPrior, WhatTheBoardTellsGoesFirst) {
  const WattPrior prior = watt_prior({.chip = "H200", .base = Watts(66), .context = Watts(33)});
  EXPECT_EQ(prior.base.mean, 66);
  EXPECT_EQ(prior.context.mean, 33);
  EXPECT_LT(prior.base.sd, watt_prior({.chip = "H200"}).base.sd);
  EXPECT_EQ(prior.units[0].mean, watt_prior({.chip = "H200"}).units[0].mean);
}

}  // namespace
}  // namespace derate
