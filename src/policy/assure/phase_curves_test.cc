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

// Launches of work that follows the clock, read at two clocks in turn while the work in one moves.
PhaseCurves of_launches(double moves_per_s) {
  const auto look = [&](double x, double time) {
    ReadingBatch out = look_at(x, std::exp(-x));
    put(out, Signal::beat, 1000 * std::exp(-x - moves_per_s * time));
    out.launched = true;
    return out;
  };
  PhaseCurves curves = make_curves(look(0, 0), Megahertz(1980), curve_priors("H200"));
  for (int i = 0; i < 60; ++i) {
    const bool low = i % 10 >= 2;
    curves.learn(look(low ? 0.1 : 0, i), Instant(std::chrono::seconds(i)), !low);
  }
  return curves;
}

TEST(PhaseCurves, WorkInALaunchThatMovesIsNoProgress) {
  for (const double moves : {0.0, 0.0005, -0.0005, 0.003, -0.003}) {
    const PhaseCurves curves = of_launches(moves);
    ASSERT_TRUE(curves.launches.moves);
    EXPECT_NEAR(curves.progress.performance(0.1).mean, -0.1, 0.004) << moves;
    EXPECT_NEAR(curves.progress.trend().mean, -moves, 0.0003) << moves;
    EXPECT_NEAR(curves.launches.moved, -moves * 8, 0.006) << moves;  // since the last reference
  }
}

TEST(PhaseCurves, HeartbeatsHaveNoTrend) {
  ReadingBatch beats = look_at(0, 1);
  put(beats, Signal::beat, 1000);
  const PhaseCurves curves = make_curves(beats, Megahertz(1980), curve_priors("H200"));
  EXPECT_FALSE(curves.launches.moves);
  EXPECT_EQ(curves.progress.trend().sd, 0);
}

}  // namespace
}  // namespace derate
