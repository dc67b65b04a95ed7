#include "telemetry/energy_windows.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

namespace derate {
namespace {

using namespace literals;
using namespace std::chrono_literals;

constexpr Duration kMaxGap = 2s;
constexpr double kRounding = 1e-6;  // joules, of sums of up to 1e6

Sample at_watts(Duration time, std::optional<Watts> power, std::optional<Joules> energy = {}) {
  Sample sample;
  sample.time = Instant(time);
  sample.power_usage = power;
  sample.energy = energy;
  return sample;
}

// --- against the truth ---------------------------------------------------------------------------

// A GPU whose power changes at instants only, and what a reader sees of it.
struct Truth {
  struct Step {
    Duration begin{};
    double watts = 0;
  };
  std::vector<Step> steps;

  double watts(Duration t) const {
    double out = 0;
    for (const Step& step : steps)
      if (step.begin <= t) out = step.watts;
    return out;
  }
  double joules(Duration until) const {
    double out = 0;
    for (std::size_t i = 0; i < steps.size() && steps[i].begin < until; ++i) {
      const Duration end = i + 1 < steps.size() ? std::min(steps[i + 1].begin, until) : until;
      out += steps[i].watts * seconds(end - steps[i].begin);
    }
    return out;
  }
  double joules(Duration from, Duration until) const { return joules(until) - joules(from); }
};

struct Plan {
  bool counter = true;
  unsigned lost_of_ten = 0;  // samples
  bool resets = false;
};

// A random run: the truth, the samples that came through, and windows over it.
struct Run {
  Run(unsigned seed, const Plan& plan) : random(seed) {
    constexpr int kSteps = 80;
    Duration time{};
    double base = 1e6, counter = 0;
    for (int i = 0; i < kSteps; ++i) {
      truth.steps.push_back({time, static_cast<double>(1 + below(700))});
      length = time;
      const bool end = i == 0 || i == kSteps - 1;  // a reading there settles every window
      if (end || below(10) >= plan.lost_of_ten) {
        samples.push_back(at_watts(time, Watts(truth.steps.back().watts)));
        if (plan.counter && (end || below(4) == 0)) {
          // Where it starts anew it is lower than it was, or nobody could see it.
          if (plan.resets && i > 0 && below(3) == 0) base = counter / 2 - truth.joules(time);
          counter = base + truth.joules(time);
          samples.back().energy = Joules(counter);
        }
      }
      time += std::chrono::milliseconds(1 + below(400));
    }
  }
  unsigned below(unsigned limit) { return static_cast<unsigned>(random() % limit); }
  Duration instant() {
    return Duration(
        static_cast<Duration::rep>(random() % static_cast<std::uint64_t>(length.count())));
  }

  std::mt19937_64 random;
  Truth truth;
  std::vector<Sample> samples;
  Duration length{};
};

struct Wanted {
  std::string name;
  Duration begin{}, end{};
};

// What the windows come to, fed in order of time.
std::map<std::string, GpuEnergy> measure(const Run& run, const std::vector<Wanted>& wanted) {
  EnergyWindows windows(kMaxGap);
  const std::size_t gpu = windows.add_gpu();
  std::vector<std::pair<EnergyWindows::WindowId, std::string>> ended;
  struct Event {
    Duration time{};
    int rank = 0;  // of the same instant: an end, a begin, a sample
    std::function<void()> what;
  };
  std::vector<Event> events;
  for (const Sample& sample : run.samples)
    events.push_back({sample.time.time_since_epoch(), 2, [&] { windows.add(gpu, sample); }});
  for (const Wanted& one : wanted) {
    events.push_back({one.begin, 1, [&] {
                        ASSERT_TRUE(windows.begin(1, one.name, Instant(one.begin), {gpu}).ok());
                      }});
    events.push_back({one.end, one.end == one.begin ? 2 : 0, [&] {
                        ended.emplace_back(*windows.end(1, one.name, Instant(one.end)), one.name);
                      }});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::pair(a.time, a.rank) < std::pair(b.time, b.rank);
  });
  for (const Event& event : events) event.what();
  std::map<std::string, GpuEnergy> out;
  for (const auto& [id, name] : ended) out[name] = windows.take(id)->gpus.at(0);
  return out;
}

// The same in a row, in each other, and across each other.
std::vector<Wanted> some_windows(Run& run) {
  std::vector<Duration> cuts;
  for (int i = 0; i < 6; ++i) cuts.push_back(run.instant());
  std::sort(cuts.begin(), cuts.end());
  std::vector<Wanted> out{{"all", cuts.front(), cuts.back()}};
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    out.push_back({"part" + std::to_string(i), cuts[i], cuts[i + 1]});
  out.push_back({"across", cuts[1], cuts[4]});
  return out;
}

Plan any_plan(unsigned seed) { return {seed % 2 == 0, seed / 2 % 8, seed / 16 % 2 == 0}; }

RC_GTEST_PROP(EnergyWindowsProperty, AdjacentOnesAddUpAndInnerOnesAreNoLarger, (unsigned seed)) {
  Run run(seed, any_plan(seed));
  const auto wanted = some_windows(run);
  const auto got = measure(run, wanted);
  GpuEnergy sum;
  sum.energy = sum.integrated = Joules(0);
  for (const Wanted& one : wanted) {
    const GpuEnergy& part = got.at(one.name);
    const GpuEnergy& all = got.at("all");
    RC_ASSERT(part.settled);
    RC_ASSERT(part.uncovered <= one.end - one.begin);
    RC_ASSERT(part.uncovered <= part.dark);
    RC_ASSERT(part.energy.value_or(Joules(0)).value() >= -kRounding);
    RC_ASSERT(part.energy.value_or(Joules(0)) <=
              all.energy.value_or(Joules(0)) + Joules(kRounding));
    if (!one.name.starts_with("part")) continue;
    *sum.energy += part.energy.value_or(Joules(0));
    *sum.integrated += part.integrated.value_or(Joules(0));
    sum.uncovered += part.uncovered;
    sum.dark += part.dark;
    sum.counter_resets += part.counter_resets;
  }
  const GpuEnergy& all = got.at("all");
  RC_ASSERT(std::abs((*sum.energy - all.energy.value_or(Joules(0))).value()) < kRounding);
  RC_ASSERT(std::abs((*sum.integrated - all.integrated.value_or(Joules(0))).value()) < kRounding);
  RC_ASSERT((sum.uncovered == all.uncovered && sum.dark == all.dark));
  RC_ASSERT(sum.counter_resets == all.counter_resets);
}

// Where every change of power is seen, windows are exact, wherever they are cut, by the counter, by
// power and over resets of the counter alike.
RC_GTEST_PROP(EnergyWindowsProperty, WhatIsSeenIsExact, (unsigned seed)) {
  Run run(seed, {.counter = seed % 3 != 0, .resets = seed % 3 == 1});
  for (const auto wanted = some_windows(run); const auto& [name, energy] : measure(run, wanted)) {
    const auto one = std::find_if(wanted.begin(), wanted.end(),
                                  [&, of = name](const Wanted& w) { return w.name == of; });
    const double truth = run.truth.joules(one->begin, one->end);
    RC_ASSERT(std::abs(energy.energy->value() - truth) < kRounding);
    RC_ASSERT(std::abs(energy.integrated->value() - truth) < kRounding);
    RC_ASSERT((energy.uncovered == Duration{} && energy.dark == Duration{}));
    if (seed % 3 == 2 && one->end > one->begin) RC_ASSERT(energy.source == EnergySource::counter);
    if (seed % 3 == 0) RC_ASSERT(energy.source == EnergySource::integrated);
  }
}

// With lost samples the counter is off by no more than what was used between the two readings that
// bracket each end.
RC_GTEST_PROP(EnergyWindowsProperty, ACounterIsOffAtTheEndsOnly, (unsigned seed)) {
  Run run(seed, {.counter = true, .lost_of_ten = 1 + seed % 8});
  const auto bracket = [&](Duration t) {
    Duration before{}, after = run.length;
    for (const Sample& sample : run.samples) {
      if (!sample.energy) continue;
      const Duration time = sample.time.time_since_epoch();
      if (time <= t) before = std::max(before, time);
      if (time >= t) after = std::min(after, time);
    }
    return run.truth.joules(before, after);
  };
  for (const auto wanted = some_windows(run); const auto& [name, energy] : measure(run, wanted)) {
    const auto one = std::find_if(wanted.begin(), wanted.end(),
                                  [&, of = name](const Wanted& w) { return w.name == of; });
    const double truth = run.truth.joules(one->begin, one->end);
    const double bound = bracket(one->begin) + bracket(one->end) + kRounding;
    RC_ASSERT(std::abs(energy.energy->value() - truth) <= bound);
  }
}

// Without a counter, what no reading covers is told to the nanosecond.
RC_GTEST_PROP(EnergyWindowsProperty, HolesAreTold, (unsigned seed)) {
  Run run(seed, {.counter = false, .lost_of_ten = 9});
  for (const auto wanted = some_windows(run); const auto& [name, energy] : measure(run, wanted)) {
    const auto one = std::find_if(wanted.begin(), wanted.end(),
                                  [&, of = name](const Wanted& w) { return w.name == of; });
    Duration holes{};
    for (std::size_t i = 0; i + 1 < run.samples.size(); ++i) {
      const Duration from = run.samples[i].time.time_since_epoch() + kMaxGap;
      const Duration until = run.samples[i + 1].time.time_since_epoch();
      holes += std::max(Duration{}, std::min(until, one->end) - std::max(from, one->begin));
    }
    RC_ASSERT(energy.uncovered == holes);
    RC_ASSERT(energy.dark == holes);
    RC_ASSERT(energy.energy.has_value() ==
              (holes < one->end - one->begin || one->end == one->begin));
  }
}

// --- examples ------------------------------------------------------------------------------------

struct Bench {
  EnergyWindows windows{kMaxGap};
  std::size_t gpu = windows.add_gpu();
  void add(Duration time, std::optional<Watts> power, std::optional<Joules> energy = {}) {
    windows.add(gpu, at_watts(time, power, energy));
  }
  void begin(Duration time, const char* name = "w") {
    EXPECT_TRUE(windows.begin(1, name, Instant(time), {gpu}).ok());
  }
  GpuEnergy end(Duration time, EnergyWindows::Wait wait = EnergyWindows::Wait::no) {
    return windows.take(*windows.end(1, "w", Instant(time)), wait)->gpus.at(0);
  }
};

// The reading before the window counts in it.
TEST(EnergyWindows, AWindowBetweenTwoReadingsIsNotEmpty) {
  Bench bench;
  bench.add(0s, 100_W);
  bench.begin(200ms);
  EXPECT_NEAR(bench.end(900ms).energy->value(), 70, 1e-9);
}

TEST(EnergyWindows, NineSecondsOfAHundredWattsAreNineHundredJoules) {
  Bench bench;
  Duration t{};
  for (; t <= 1s; t += 100ms) bench.add(t, 100_W);
  bench.begin(1050ms);
  for (; t <= 10s; t += 100ms) bench.add(t, 100_W);
  const GpuEnergy energy = bench.end(10050ms);
  EXPECT_NEAR(energy.energy->value(), 900, 1e-9);
  EXPECT_EQ(energy.source, EnergySource::integrated);
  EXPECT_EQ(energy.mean_power(9s), 100_W);
  EXPECT_TRUE(energy.settled);
}

TEST(EnergyWindows, ACounterIsSharedOutByPowerOnceItIsRead) {
  Bench bench;
  bench.add(0s, 100_W, 0_J);
  bench.begin(500ms);
  bench.add(1s, 300_W);
  const auto id = *bench.windows.end(1, "w", Instant(1500ms));
  EXPECT_FALSE(bench.windows.take(id));  // the counter is yet to be read
  bench.add(2s, 300_W, 800_J);           // readings said 400 J: each counts double
  const GpuEnergy energy = bench.windows.take(id)->gpus.at(0);
  EXPECT_NEAR(energy.energy->value(), 2 * (50 + 150), 1e-9);
  EXPECT_NEAR(energy.integrated->value(), 200, 1e-9);
  EXPECT_EQ(energy.source, EnergySource::counter);
  EXPECT_FALSE(bench.windows.take(id));  // taken is taken
}

// A window shorter than the counter's step is not without energy.
TEST(EnergyWindows, ACounterThatHasNotMovedIsNoReading) {
  Bench bench;
  bench.add(0s, 100_W, 1000_J);
  bench.begin(10ms);
  bench.add(20ms, 300_W, 1000_J);
  const auto id = *bench.windows.end(1, "w", Instant(30ms));
  bench.add(40ms, 300_W, 1000_J);
  EXPECT_FALSE(bench.windows.take(id));
  bench.add(100ms, 300_W, 1025_J);
  EXPECT_NEAR(bench.windows.take(id)->gpus.at(0).energy->value(), 25 * 4 / 26.0, 1e-9);
}

// A counter that stands still for seconds is missing: power stands in, which is reported.
TEST(EnergyWindows, ACounterThatStandsStillIsNotZero) {
  Bench bench;
  bench.begin(0s);
  for (Duration t{}; t <= 25s; t += 1s) bench.add(t, 700_W, 1000_J);
  const GpuEnergy energy = bench.end(25s, EnergyWindows::Wait::until_settled);
  EXPECT_NEAR(energy.energy->value(), 17500, 1e-6);
  EXPECT_EQ(energy.source, EnergySource::integrated);
  EXPECT_GE(energy.counter_still, 20s);
  EXPECT_EQ(energy.agrees(), false);
  // The counter begins anew when it moves again.
  bench.begin(25s);
  for (Duration t = 26s; t <= 40s; t += 1s)
    bench.add(t, 700_W, 1000_J + Joules(700 * seconds(t - 25s)));
  const GpuEnergy after = bench.end(40s);
  EXPECT_NEAR(after.energy->value(), 700 * 15, 1e-6);
  EXPECT_EQ(after.source, EnergySource::mixed);
}

// A window that begins just before the counter is known to stand still reports only its own time.
TEST(EnergyWindows, AWindowIsToldOfItsOwnStillTime) {
  Bench bench;
  for (Duration t{}; t < 3s; t += 100ms) bench.add(t, 700_W, 1000_J);
  bench.begin(2900ms);
  for (Duration t = 3s; t <= 3200ms; t += 100ms) bench.add(t, 700_W, 1000_J);
  const GpuEnergy energy = bench.end(3150ms, EnergyWindows::Wait::until_settled);
  EXPECT_GT(energy.counter_still, 100ms);
  EXPECT_LE(energy.counter_still, 300ms);
  EXPECT_NEAR(energy.energy->value(), 700 * 0.3, 700 * 0.06);
}

TEST(EnergyWindows, WhoCannotWaitGetsPowerSinceTheLastReading) {
  Bench bench;
  bench.add(0s, 100_W, 0_J);
  bench.begin(0s);
  bench.add(1s, 100_W, 130_J);
  const GpuEnergy energy = bench.end(1500ms);
  EXPECT_NEAR(energy.energy->value(), 180, 1e-9);
  EXPECT_EQ(energy.source, EnergySource::mixed);
  EXPECT_FALSE(energy.settled);
}

TEST(EnergyWindows, ACounterThatGoesBackOrJumpsIsBridgedAndTold) {
  for (const Joules odd : {5_J, 9e6_J}) {
    Bench bench;
    bench.add(0s, 100_W, 1000_J);
    bench.begin(0s);
    bench.add(1s, 100_W, 1090_J);
    bench.add(2s, 100_W, odd);
    bench.add(3s, 100_W, odd + 90_J);
    const GpuEnergy energy = bench.end(3s);
    EXPECT_NEAR(energy.energy->value(), 280, 1e-9);
    EXPECT_EQ(energy.source, EnergySource::mixed);
    EXPECT_EQ(energy.counter_resets, 1);
  }
}

TEST(EnergyWindows, ADisagreementOfCounterAndPowerIsTold) {
  for (const double factor : {1.0, 1.09, 1.2, 0.8}) {
    Bench bench;
    bench.begin(0s);
    bench.add(0s, Watts(100 * factor), 0_J);
    for (Duration t = 1s; t <= 12s; t += 1s)
      bench.add(t, Watts(100 * factor), Joules(100 * seconds(t)));
    const GpuEnergy energy = bench.end(12s);
    EXPECT_NEAR(*energy.check_ratio, factor, 1e-9);
    EXPECT_EQ(energy.agrees(), std::abs(factor - 1) < 0.1) << factor;
  }
  Bench brief;
  brief.begin(0s);
  brief.add(0s, 200_W, 0_J);
  brief.add(1s, 200_W, 100_J);
  EXPECT_FALSE(brief.end(1s).agrees());  // too short to judge
}

TEST(EnergyWindows, NothingKnownIsNotZero) {
  Bench bench;
  bench.begin(0s);
  for (Duration t = 0s; t <= 3s; t += 1s) bench.add(t, {});
  const GpuEnergy energy = bench.end(3s);
  EXPECT_FALSE(energy.energy || energy.integrated || energy.mean_power(3s));
  EXPECT_EQ(energy.source, EnergySource::none);
  EXPECT_EQ(energy.uncovered, 3s);
  Bench no_sample;
  no_sample.begin(1s);
  EXPECT_FALSE(no_sample.end(1s).energy);
}

TEST(EnergyWindows, AnOldSampleOrInstantMovesNothingBack) {
  Bench bench;
  bench.add(1s, 100_W);
  bench.begin(1s);
  bench.add(2s, 100_W);
  bench.add(500ms, 900_W);
  EXPECT_NEAR(bench.end(1500ms).energy->value(), 100, 1e-9);  // to the newest instant
}

TEST(EnergyWindows, NamesAreOfTheirOwner) {
  Bench bench;
  bench.add(0s, 100_W);
  bench.begin(0s, "epoch");
  EXPECT_TRUE(bench.windows.begin(2, "epoch", Instant(0s), {}).ok());
  const auto again = bench.windows.begin(1, "epoch", Instant(1s), {bench.gpu});
  EXPECT_EQ(again.error().code, Errc::invalid_argument);
  EXPECT_NE(again.error().message.find("'epoch' is open already"), std::string::npos);
  EXPECT_TRUE(
      bench.windows.begin(1, "epoch", Instant(1s), {bench.gpu}, EnergyWindows::IfOpen::restart)
          .ok());
  const auto id = *bench.windows.end(1, "epoch", Instant(2s));
  EXPECT_EQ(bench.windows.take(id)->time, 1s);
  bench.begin(2s, "step");
  bench.begin(2s, "eval");
  const auto missing = bench.windows.end(1, "epoch", Instant(3s));
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_EQ(missing.error().message, "no window 'epoch' is open; there are: 'eval', 'step'");
  EXPECT_TRUE(bench.windows.cancel(1, "step").ok());
  EXPECT_FALSE(bench.windows.cancel(1, "step").ok());
  EXPECT_EQ(bench.windows.open(1, Instant(3s)).size(), 1u);
  EXPECT_EQ(bench.windows.open(1, Instant(3s))[0].time, 1s);
}

TEST(EnergyWindows, WindowsThatNobodyEndsAreLimitedAndForgotten) {
  Bench bench;
  for (std::size_t i = 0; i < EnergyWindows::kMostWindows; ++i)
    bench.begin(0s, std::to_string(i).c_str());
  EXPECT_EQ(bench.windows.begin(1, "more", Instant(0s), {}).error().code, Errc::busy);
  EXPECT_TRUE(bench.windows.end(1, "3", Instant(0s)).ok());
  EXPECT_EQ(bench.windows.begin(1, "more", Instant(0s), {}).error().code, Errc::busy);
  bench.windows.forget(1);
  EXPECT_EQ(bench.windows.size(), 0u);
  for (const std::string& bad : {std::string(), std::string(129, 'x'), std::string("a\nb")})
    EXPECT_EQ(bench.windows.begin(1, bad, Instant(0s), {}).error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace derate
