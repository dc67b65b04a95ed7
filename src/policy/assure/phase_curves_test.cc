#include "policy/assure/phase_curves.h"

#include <gtest/gtest.h>

#include "policy/assure/test_look.h"

namespace derate {
namespace {

TEST(PhaseCurves, SignalsThatTell) {
  const Megahertz highest(1980);
  const CurvePriors priors = curve_priors("H200");
  using Signals = std::vector<Signal>;
  EXPECT_EQ(informative_signals(look_at(0, 1), highest, priors),
            (Signals{Signal::dram, Signal::tensor}));
  EXPECT_EQ(informative_signals(look_at(0, 1, 0.02), highest, priors), Signals{Signal::tensor});
  ReadingBatch coarse;
  put(coarse, Signal::memory, 0.4);
  EXPECT_EQ(informative_signals(coarse, highest, priors), Signals{Signal::memory});
  put(coarse, Signal::dram, 0.01);  // the finer one is there, and shows nothing
  EXPECT_EQ(informative_signals(coarse, highest, priors), Signals{});
  ReadingBatch full;
  put(full, Signal::memory, 0.99);
  EXPECT_EQ(informative_signals(full, highest, curve_priors("A100-SXM4")), Signals{});
  ReadingBatch pipes = look_at(0, 1, 0);
  put(pipes, Signal::fp32, 0.2);
  put(pipes, Signal::integer, 0.3);
  EXPECT_EQ(informative_signals(pipes, highest, priors),
            (Signals{Signal::integer, Signal::tensor}));
  put(pipes, Signal::beat, 3);
  EXPECT_EQ(informative_signals(pipes, highest, priors), Signals{Signal::beat});
}

TEST(PhaseCurves, PowerFitsUntilItIsKnown) {
  PhaseCurves curves = make_curves(look_at(0, 1), Megahertz(1980), curve_priors("H200"));
  ReadingBatch twice = look_at(0, 1);
  twice.of(Signal::power) = {};
  put(twice, Signal::power, 1000);
  EXPECT_TRUE(curves.power_fits(twice));
  curves.learn(look_at(0, 1), {}, true);
  EXPECT_FALSE(curves.power_fits(twice));
  EXPECT_TRUE(curves.power_fits(look_at(0, 1)));
  EXPECT_TRUE(curves.counters_fit(twice));
}

TEST(PhaseCurves, LongReadingsOfTheExpectedNarrowAndMoveNothing) {
  PhaseCurves curves = make_curves(look_at(0, 1), Megahertz(1980), curve_priors("H200"));
  curves.learn(look_at(0, 1), {}, true);
  const Belief before = curves.progress.performance(0.3);
  curves.assume_read(0.3);
  const Belief after = curves.progress.performance(0.3);
  EXPECT_NEAR(after.mean, before.mean, 1e-9);
  EXPECT_LT(after.sd, before.sd);
}

}  // namespace
}  // namespace derate
