#include "telemetry/meter_watch.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using State = MeterWatch::State;
using namespace std::chrono_literals;

struct Meter {
  MeterWatch watch;
  Duration now{};
  double joules = 1000;
  Duration every = 1s;

  // Adds a sample every so often, with `watts` as power and `counted` as the counter's rate.
  int changes(Duration time, double watts, double counted) {
    int out = 0;
    for (const Duration end = now + time; now < end;) {
      now += every;
      joules += counted;
      Sample sample;
      sample.time = Instant(now);
      sample.power_usage = Watts(watts);
      sample.energy = Joules(joules);
      out += watch.add(sample) ? 1 : 0;
    }
    return out;
  }
};

// A driver that hung gave no readings, which is no evidence about the counter.
TEST(MeterWatch, ATimeWithoutReadingsIsNoStandstill) {
  Meter meter;
  meter.changes(10s, 700, 700);
  meter.now += 30s;
  EXPECT_EQ(meter.changes(2s, 700, 0), 0);
  EXPECT_EQ(meter.changes(10s, 700, 700), 0);
  EXPECT_EQ(meter.watch.state(), State::sound);
}

TEST(MeterWatch, ACounterThatCountsIsSound) {
  Meter meter;
  EXPECT_EQ(meter.changes(200s, 700, 670), 0);
  EXPECT_EQ(meter.watch.state(), State::sound);
}

TEST(MeterWatch, OneThatStandsStillIsDoubtedUntilItMoves) {
  Meter meter;
  meter.changes(10s, 700, 700);
  EXPECT_EQ(meter.changes(30s, 700, 0), 1);
  EXPECT_EQ(meter.watch.state(), State::still);
  EXPECT_EQ(meter.changes(55s, 700, 700), 0);
  EXPECT_EQ(meter.changes(10s, 700, 700), 1);
  EXPECT_EQ(meter.watch.state(), State::sound);
  // A counter that moves again and shows too little was never sound in between.
  meter.changes(10s, 700, 0);
  EXPECT_EQ(meter.watch.state(), State::still);
  EXPECT_EQ(meter.changes(70s, 700, 400), 1);
  EXPECT_EQ(meter.watch.state(), State::differs);
}

TEST(MeterWatch, OneThatStepsEveryFiveSecondsIsDoubtedOnce) {
  Meter meter;
  int changes = 0;
  for (int i = 0; i < 60; ++i) changes += meter.changes(1s, 700, 3500) + meter.changes(4s, 700, 0);
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(meter.watch.state(), State::still);
}

// A service that reads every 5 s compares, too.
TEST(MeterWatch, ReadingsThatAreFurtherApartAreCompared) {
  Meter meter;
  meter.every = 5s;
  meter.watch.set_max_gap(10s);
  EXPECT_EQ(meter.changes(130s, 700, 5 * 400), 1);
  EXPECT_EQ(meter.watch.state(), State::differs);
}

TEST(MeterWatch, OneThatShowsPartOfThePowerIsReported) {
  Meter meter;
  EXPECT_EQ(meter.changes(130s, 700, 400), 1);
  EXPECT_EQ(meter.watch.state(), State::differs);
  ASSERT_TRUE(meter.watch.ratio());
  EXPECT_NEAR(*meter.watch.ratio(), 1.75, 1e-6);
  EXPECT_EQ(meter.changes(130s, 700, 700), 1);
  EXPECT_EQ(meter.watch.state(), State::sound);
}

}  // namespace
}  // namespace derate
