#include "policy/assure/readings.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Megahertz kV100Top(1530);

Estimate reading(Duration at, double mhz, double memory = 0.5, double watts = 200) {
  Estimate out;
  out.time = Instant{} + at;
  out.sm_clock = Megahertz(mhz);
  out.gpu_utilisation = Fraction(1);
  out.memory_utilisation = Fraction(memory);
  out.power = Watts(watts);
  return out;
}

TEST(HeldClock, AClockWithinAFewHundredthsIsTheSame) {
  HeldClock held;
  EXPECT_TRUE(held.follow(reading(1s, 1500), true));
  EXPECT_FALSE(held.follow(reading(2s, 1520), true));
  EXPECT_TRUE(held.follow(reading(3s, 1300), true));
  EXPECT_EQ(held.since, Instant{} + 3s);
  // The power limit moves it: a look is of the mean.
  EXPECT_FALSE(held.follow(reading(4s, 1000), false));
  EXPECT_TRUE(held.follow(reading(5s, 700), false));
}

TEST(SensorWindow, IsAsLongAsReadingsRiseAtTheJobsStart) {
  SensorWindow window;
  window.begin(Instant{}, 3s);
  EXPECT_EQ(window.counters_settled(3s, 200ms, 0.2), 3s);
  Estimate estimate = reading(200ms, 1500);
  estimate.gpu_utilisation = Fraction(0.3);
  EXPECT_TRUE(window.rises(estimate));
  EXPECT_TRUE(window.rises(reading(600ms, 1500)));
  EXPECT_FALSE(window.rises(reading(800ms, 1500)));
  EXPECT_EQ(window.counters, 600ms);
  EXPECT_EQ(window.counters_settled(3s, 200ms, 0.2), 750ms);
  EXPECT_EQ(window.counters_settled(3s, std::nullopt, 0.2), 3s);  // it may be as long
  EXPECT_EQ(window.counters_settled(3s, 1s, 0.2), 2150ms);
  EXPECT_EQ(window.counters_settled(3s, 2s, 0.2), 4150ms);
}

ReadingTick tick_of(double memory, double watts) {
  ReadingTick out{.clock = 1500, .power = watts};
  out.signals[static_cast<std::size_t>(Signal::memory)] = memory;
  return out;
}

// However many are held back: taking all and taking back what is in doubt leaves what came before.
RC_GTEST_PROP(Gathered, WhatIsTakenBackWasNeverTaken, ()) {
  const auto values = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 100));
  const auto most = static_cast<std::size_t>(*rc::gen::inRange(0, 5));
  const auto doubtful = static_cast<std::size_t>(*rc::gen::inRange(0, 8));
  Gathered all, sure;
  for (const int value : values) all.take(tick_of(value / 100.0, 200), most, kV100Top);
  RC_ASSERT(all.held_back.size() == std::min(most, values.size()));
  all.take_back(doubtful, kV100Top);
  const std::size_t kept =
      values.size() - std::min(values.size(), std::max(doubtful, all.held_back.size()));
  for (std::size_t i = 0; i < kept; ++i) sure.take(tick_of(values[i] / 100.0, 200), 0, kV100Top);
  RC_ASSERT(all.ticks.size() == kept);
  RC_ASSERT(all.look.clock.count() == sure.look.clock.count());
  const auto memory = static_cast<std::size_t>(Signal::memory);
  if (kept > 0) RC_ASSERT(all.look.signals[memory].mean() == sure.look.signals[memory].mean());
}

TEST(Gathered, ReadingsOfTwoPhasesPart) {
  Gathered gathered;
  EXPECT_FALSE(gathered.parts_from_last(tick_of(0.5, 200)));
  gathered.take(tick_of(0.5, 200), 0, kV100Top);
  EXPECT_FALSE(gathered.parts_from_last(tick_of(0.6, 205)));
  EXPECT_TRUE(gathered.parts_from_last(tick_of(0.5, 250)));
  EXPECT_TRUE(gathered.parts_from_last(tick_of(0.9, 200)));
}

TEST(Voice, BeatsThatComeTooSeldomAreNotHeard) {
  for (const Duration every : {200ms, 2000ms, 4000ms}) {
    Voice voice;
    double done = 0;
    for (Duration at = 1s; at < 30s; at += every) {
      Estimate estimate = reading(at, 1500);
      estimate.work.progress = Progress{.run = 1, .done = done += 1, .time = estimate.time};
      EXPECT_TRUE(voice.hear(estimate, {}));
    }
    EXPECT_EQ(voice.hears, every < 2500ms) << every / 1ms;
    EXPECT_FALSE(voice.told);
    if (voice.hears) {
      EXPECT_NEAR(*voice.beat, 1 / seconds(every), 1e-9);
    }
  }
}

TEST(Counters, ThatRepeatWhatTheyShowedBeforeAMoveStandStill) {
  Counters counters;
  bool stood = false;
  for (int i = 0; i < 40; ++i)
    stood |= counters.stand(reading(i * 200ms, 1500, 0.5 + 0.01 * (i % 3)), false).stands;
  EXPECT_FALSE(stood);
  counters.moved();
  const auto first = counters.stand(reading(8s, 1000, 0.5 + 0.01 * (39 % 3)), false);
  EXPECT_TRUE(first.stands && first.began);
  const auto next = counters.stand(reading(8200ms, 1000, 0.5 + 0.01 * (39 % 3)), false);
  EXPECT_TRUE(next.stands && !next.began);
  counters.read(reading(8200ms, 1000), kV100Top);
  EXPECT_EQ(counters.newest, SignalValues{});
}

// A counter that stands still shows no power: the GPU's power readings replace it.
TEST(MeanPowerMeter, OfACounterThatStandsStillNothingIsLearned) {
  MeanPowerMeter meter;
  EXPECT_TRUE(meter.see(Instant{}, Joules(5)));
  EXPECT_FALSE(meter.see(Instant{} + 1s, Joules(5)));
  EXPECT_FALSE(meter.see(Instant{} + 2s, Joules(5)));
  EXPECT_TRUE(meter.counter);
  EXPECT_FALSE(meter.see(Instant{} + 4s, Joules(5)));
  EXPECT_FALSE(meter.counter);
  EXPECT_TRUE(meter.see(Instant{} + 5s, Joules(600)));
  EXPECT_FALSE(meter.mean(Instant{} + 5s, Joules(600)));  // the counter begins anew
}

TEST(MeanPowerMeter, IsReadOverASecondAtLeast) {
  MeanPowerMeter meter;
  EXPECT_FALSE(meter.mean(Instant{}, Joules(0)));
  EXPECT_FALSE(meter.mean(Instant{} + 500ms, Joules(100)));
  const auto mean = meter.mean(Instant{} + 2s, Joules(400));
  ASSERT_TRUE(mean);
  EXPECT_EQ(mean->power, Watts(200));
}

}  // namespace
}  // namespace derate
