#include "telemetry/clock_histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

Sample at_clock(Duration time, std::optional<Megahertz> clock) {
  Sample sample;
  sample.time = Instant(time);
  sample.sm_clock = clock;
  return sample;
}

TEST(ClockHistogram, HoldsEachClockUntilTheNextSample) {
  ClockHistogram histogram;
  EXPECT_FALSE(histogram.mean());
  histogram.add(at_clock(0s, 1530_MHz));
  EXPECT_FALSE(histogram.mean());
  histogram.add(at_clock(1s, 952_MHz));
  histogram.add(at_clock(3s, 1530_MHz));
  histogram.add(at_clock(4s, 952_MHz));
  EXPECT_EQ(histogram.bins(), (std::map<Megahertz, Duration>{{952_MHz, 2s}, {1530_MHz, 2s}}));
  EXPECT_EQ(histogram.mean(), 1241_MHz);
}

TEST(ClockHistogram, NotLongerThanMaxHoldAndNotWithoutAClock) {
  ClockHistogram histogram(500ms);
  histogram.add(at_clock(0s, 1000_MHz));
  histogram.add(at_clock(10s, std::nullopt));
  histogram.add(at_clock(11s, 2000_MHz));
  histogram.add(at_clock(11s, 3000_MHz));
  histogram.add(at_clock(11s + 100ms, 3000_MHz));
  EXPECT_EQ(histogram.bins(),
            (std::map<Megahertz, Duration>{{1000_MHz, 500ms}, {3000_MHz, 100ms}}));
}

RC_GTEST_PROP(ClockHistogramProperty, TheBinsAddUpToTheTime, (unsigned seed)) {
  std::mt19937_64 random(seed);
  ClockHistogram histogram;
  Duration time{};
  for (int i = 0; i < 50; ++i) {
    if (i > 0) time += std::chrono::milliseconds(random() % 2001);
    histogram.add(at_clock(time, Megahertz(static_cast<double>(900 + random() % 4))));
  }
  Duration sum{};
  for (const auto& [clock, held] : histogram.bins()) sum += held;
  RC_ASSERT(sum == time);
  if (histogram.mean()) RC_ASSERT((*histogram.mean() >= 900_MHz && *histogram.mean() <= 903_MHz));
}

}  // namespace
}  // namespace derate
