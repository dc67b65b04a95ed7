#include "policy/assure/reading_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <utility>

namespace derate {
namespace {

// Readings of beats, and what is believed of the log of their mean.
struct BeatTrials {
  double square = 0, believed = 0;  // on average
};

// `own`: the share of their variance that is the work's, new in each; the rest is of one count,
// whose ends alone are not sure.
BeatTrials beat_trials(int count, double own, double sd, bool may_wait = false) {
  constexpr int kTrials = 400;
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 1);
  BeatTrials out;
  for (int trial = 0; trial < kTrials; ++trial) {
    ReadingBatch look{.may_wait = may_wait};
    Readings& beats = look.of(Signal::beat);
    double begun = noise(random);
    for (int i = 0; i < count; ++i) {
      const double ended = noise(random),
                   edges = (ended - std::exchange(begun, ended)) / std::numbers::sqrt2;
      beats.add(100 * (1 + sd * (std::sqrt(own) * noise(random) + std::sqrt(1 - own) * edges)));
    }
    out.square += std::pow(std::log(beats.mean() / 100), 2) / kTrials;
    out.believed += look.relative_variance(Signal::beat) / kTrials;
  }
  return out;
}

// Of one count n readings' mean is sure as their whole time is; of work that varies from reading to
// reading it is not.
TEST(ReadingBatch, ReadingsOfBeatsThatFollowEachOtherAreOneCount) {
  const BeatTrials edges = beat_trials(10, 0, 0.01);
  EXPECT_GT(edges.believed, edges.square);  // on the safe side,
  EXPECT_LT(edges.believed, 1e-4 / 10);     // and better than independent readings would be
  const BeatTrials varies = beat_trials(10, 1, 0.1);
  EXPECT_NEAR(varies.believed / varies.square, 1, 0.3);
}

// As of GPUs that wait for each other. How much it is shows where many were read.
TEST(ReadingBatch, ReadingsThatSpreadMayBeOneCount) {
  const double independent = 0.1 * 0.1 / 100;
  EXPECT_LT(beat_trials(100, 0, 0.1).believed, independent / 2);
  for (const double own : {0.1, 0.3, 0.6, 1.0}) {
    const BeatTrials trials = beat_trials(100, own, 0.1);
    EXPECT_GT(trials.believed, trials.square * 0.9) << own;
    EXPECT_LT(trials.believed, independent * (own + 0.5)) << own;
  }
  EXPECT_GT(beat_trials(20, 0, 0.1).believed, 0.1 * 0.1 / 20);
  EXPECT_GT(beat_trials(100, 0, 0.1, true).believed, independent);  // it may be others' count
}

}  // namespace
}  // namespace derate
