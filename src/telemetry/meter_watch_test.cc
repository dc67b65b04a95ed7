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

  // A sample each second: the power that is read, and what the counter counts of it.
  int changes(Duration time, double watts, double counted) {
    int out = 0;
    for (const Duration end = now + time; now < end;) {
      now += 1s;
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
  EXPECT_EQ(meter.changes(2s, 700, 700), 1);
  EXPECT_EQ(meter.watch.state(), State::sound);
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
