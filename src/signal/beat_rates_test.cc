#include "signal/beat_rates.h"

#include <gtest/gtest.h>

#include <functional>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

struct World {
  double rate = 10;  // of work, a second
  double watts = 200;
  Megahertz clock{1500};
  std::string phase;
};

// `now` says what is true at a time; a beat comes each 0.25 s, a reading each 0.2 s.
std::optional<double> moved(Duration length, const std::function<World(double s)>& now) {
  BeatRates rates;
  Progress progress{.run = 1};
  double done = 0;
  Instant next{};
  for (Duration at{}; at < length; at += 50ms) {
    const World world = now(seconds(at));
    done += world.rate * 0.05;
    if (Instant(at) >= next) {
      progress.done = done;
      progress.time = Instant(at);
      next = Instant(at + 250ms);
    }
    if (at % 200ms != Duration{}) continue;
    Estimate estimate;
    estimate.time = Instant(at);
    estimate.sm_clock = world.clock;
    estimate.power = Watts(world.watts);
    estimate.work.phase = world.phase;
    estimate.work.progress = progress;
    rates.add(estimate);
  }
  return rates.moved();
}

TEST(BeatRates, SteadyWorkDoesNotMove) {
  EXPECT_EQ(moved(2min, [](double) { return World{}; }), std::nullopt);
}

TEST(BeatRates, ARateThatMovesWhilePowerRestsIsReportedWithItsSign) {
  for (const double by : {0.92, 1.08, 1.5}) {
    const auto out = moved(2min, [&](double s) { return World{.rate = s < 40 ? 10 : 10 * by}; });
    ASSERT_TRUE(out) << by;
    EXPECT_NEAR(*out, by - 1, 0.01);
  }
  EXPECT_EQ(moved(2min, [](double s) { return World{.rate = s < 40 ? 10.0 : 10.4}; }),
            std::nullopt);
}

TEST(BeatRates, PowerThatMovesWithItExplainsIt) {
  EXPECT_EQ(moved(2min,
                  [](double s) {
                    return World{.rate = s < 40 ? 10.0 : 8.0, .watts = s < 40 ? 200.0 : 180.0};
                  }),
            std::nullopt);
}

TEST(BeatRates, OtherClocksAndPhasesHaveRatesOfTheirOwn) {
  EXPECT_EQ(moved(4min,
                  [](double s) {
                    const bool low = static_cast<int>(s / 30) % 2 != 0;
                    return World{.rate = low ? 8.0 : 10.0, .clock = low ? 1200_MHz : 1500_MHz};
                  }),
            std::nullopt);
  EXPECT_EQ(moved(4min,
                  [](double s) {
                    const bool other = static_cast<int>(s / 30) % 2 != 0;
                    return World{.rate = other ? 8.0 : 10.0, .phase = other ? "decode" : "prefill"};
                  }),
            std::nullopt);
}

TEST(BeatRates, OneMeanAloneIsNoMove) {
  EXPECT_EQ(moved(2min, [](double s) { return World{.rate = s > 41 && s < 50 ? 7.0 : 10.0}; }),
            std::nullopt);
}

}  // namespace
}  // namespace derate
