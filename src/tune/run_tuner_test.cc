#include "tune/run_tuner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace derate {
namespace {

using namespace std::chrono_literals;

// Work that slows below `knee` watts, on one GPU.
struct ToyWork {
  double rate = 10, knee = 200, idle = 60;
  double rate_at(double limit) const {
    return rate * std::pow(std::clamp((limit - idle) / (knee - idle), 0.05, 1.0), 0.6);
  }
  double power_at(double limit) const { return std::min(limit, knee + 20); }
  KnobReading at(double limit) const { return {limit, rate_at(limit), Watts(power_at(limit))}; }
};

// A job as the tuner sees it, on virtual time, in rounds of 100 ms.
struct ToyJob {
  ToyWork work;
  double unit = 1;   // of work, between two reports
  double noise = 0;  // of the rate, relative, a second
  Duration pause_every{}, pause{};
  double lost = 0;         // of the readings of energy
  Duration late{};         // a report comes so much after its instant
  Duration delay = 300ms;  // until a setting is in force
  bool reports = true, obeys = true;
  std::uint64_t source = 1;

  std::mt19937_64 random{1};
  Instant now{};
  double done = 0, joules = 0, setting = 0, wanted = 0;
  Instant wanted_at{}, pause_at{}, paused_until{};
  std::vector<Progress> said;
  RunOrder order;

  void step(Duration by) {
    if (pause_every > Duration::zero() && now - pause_at >= pause_every) {
      pause_at = now + pause;
      paused_until = now + pause;
    }
    const bool paused = now < paused_until;
    if (wanted != setting && obeys && now - wanted_at >= delay) setting = wanted;
    // White noise: of a mean over t it is noise / sqrt(t).
    const double jitter = 1 + noise / std::sqrt(seconds(by)) * std::normal_distribution<>()(random);
    if (!paused) done += std::max(0.0, jitter) * work.rate_at(setting) * seconds(by);
    joules += (paused ? work.idle : work.power_at(setting)) * seconds(by);
    now += by;
    if (!reports) return;
    const double full = std::floor(done / unit) * unit;
    if (said.empty() || full > said.back().done)
      said.push_back({.run = source, .done = full, .time = now});
  }
  RunSight sight() {
    RunSight out{.time = now, .in_force = setting == wanted};
    for (const Progress& each : said)
      if (each.time + late <= now) out.work = each;
    if (std::uniform_real_distribution<>()(random) >= lost) out.energy = Joules(joules);
    return out;
  }
  void round(RunTuner& tuner) {
    order = tuner.next(sight());
    const auto& all = tuner.options().search.settings;
    RC_ASSERT(std::binary_search(all.begin(), all.end(), order.setting));
    RC_ASSERT(!describe(order.why).empty());
    if (order.setting != wanted) wanted = order.setting, wanted_at = now;
    for (int i = 0; i < 5; ++i) step(20ms);
    if (said.size() > 1000) said.erase(said.begin(), said.end() - 500);
  }
  void run(RunTuner& tuner, Duration time) {
    for (const Instant end = now + time; now < end;) round(tuner);
  }
  // How long it took; empty: longer than that.
  std::optional<Duration> until_tuned(RunTuner& tuner, Duration longest) {
    const Instant begin = now;
    while (now - begin < longest) {
      round(tuner);
      if (tuner.stage() == RunTuner::Stage::holding) return now - begin;
    }
    return std::nullopt;
  }
};

std::vector<double> limits(double lowest, double highest) {
  std::vector<double> out;
  for (double each = lowest; each <= highest; each += 25) out.push_back(each);
  return out;
}

RunTunerOptions options_for(double highest = 300, Selector selector = {}) {
  RunTunerOptions out;
  out.search = {.settings = limits(100, highest), .selector = selector};
  out.search.max_power = Watts(highest);
  out.search.limited_gpus = 1;
  return out;
}

// The best that may be had: with the guard, which nothing goes below.
double best_price(const RunTunerOptions& options, const ToyWork& work) {
  std::vector<KnobReading> all;
  for (const double each : options.search.settings) {
    const KnobReading reading = work.at(each);
    if (reading.rate * options.search.guard >= work.rate_at(options.search.settings.back()))
      all.push_back(reading);
  }
  return price(options.search.selector, options.search.max_power,
               all[best_reading(options.search.selector, options.search.max_power, all)]);
}

ToyJob any_job() {
  ToyJob job;
  job.work.knee = *rc::gen::inRange(130, 300);
  job.work.rate = *rc::gen::element(0.3, 3.0, 40.0, 5000.0);
  job.unit = job.work.rate * *rc::gen::element(0.05, 0.3, 1.0, 7.0, 45.0, 200.0);
  job.lost = *rc::gen::element(0.0, 0.3);
  job.late = std::chrono::milliseconds(*rc::gen::element(0, 50, 700));
  job.delay = std::chrono::milliseconds(*rc::gen::element(0, 300, 4000));
  job.random.seed(static_cast<unsigned>(*rc::gen::inRange(0, 1000)));
  return job;
}

Selector any_selector() {
  return {.kind = *rc::gen::element(Selector::Kind::energy, Selector::Kind::cost),
          .eta = *rc::gen::inRange(1, 10) / 10.0};
}

// Without noise what it ends at is the best, as far as the search tells prices apart.
RC_GTEST_PROP(RunTuner, EndsAtTheBestHoweverTheJobReports, ()) {
  ToyJob job = any_job();
  const auto options = options_for(300, any_selector());
  RunTuner tuner(options);
  RC_ASSERT(job.until_tuned(tuner, 2h).has_value());
  const double found =
      price(options.search.selector, options.search.max_power, job.work.at(tuner.best()->setting));
  RC_ASSERT(found <= best_price(options, job.work) * (1 + RunTuner::kTie));
  RC_ASSERT(job.work.rate_at(tuner.best()->setting) * options.search.guard * 1.01 >=
            job.work.rate_at(300));
  for (const KnobReading& reading : tuner.readings()) {
    RC_ASSERT((std::isfinite(reading.rate) && std::isfinite(reading.power.value())));
    RC_ASSERT(std::abs(reading.rate / job.work.rate_at(reading.setting) - 1) < 0.02);
    RC_ASSERT(std::abs(reading.power.value() / job.work.power_at(reading.setting) - 1) < 0.02);
  }
  const double cost = tuner.profiling_cost().value();
  RC_ASSERT((std::isfinite(cost) && cost >= 0));
  job.run(tuner, 5min);  // and there it stays
  RC_ASSERT(tuner.tunings() == 1);
}

// 2 % a second of noise, 0.5 % of a reading and some more of one that ended early by chance: two
// are compared, and 4 standard deviations of the difference are 4 %. A pause that falls badly may
// spoil a reading now and then, about one run in 4000: two of three do not.
RC_GTEST_PROP(RunTuner, EndsWithinNoiseOfTheBestWithPauses, ()) {
  ToyJob any = any_job();
  any.unit = any.work.rate * *rc::gen::element(0.05, 0.3, 1.0);
  any.noise = 0.02;
  any.pause_every = std::chrono::seconds(*rc::gen::inRange(15, 120));
  any.pause = std::chrono::seconds(*rc::gen::inRange(4, 30));
  const auto options = options_for(300, any_selector());
  int good = 0;
  for (unsigned seed = 0; seed < 3; ++seed) {
    ToyJob job = any;
    job.random.seed(seed);
    RunTuner tuner(options);
    RC_ASSERT(job.until_tuned(tuner, 1h).has_value());
    const double found = price(options.search.selector, options.search.max_power,
                               job.work.at(tuner.best()->setting));
    const bool near = found <= best_price(options, job.work) * 1.04;
    const auto readings = tuner.readings();
    const bool true_rates = std::all_of(readings.begin(), readings.end(), [&](const auto& each) {
      return std::abs(each.rate / job.work.rate_at(each.setting) - 1) < 0.04;
    });
    good += near && true_rates ? 1 : 0;
  }
  RC_ASSERT(good >= 2);
}

// Whatever it is told, it asks for settings of its list (round() asserts that) and tells numbers.
RC_GTEST_PROP(RunTuner, StandsWhateverIsReported, ()) {
  RunTuner tuner(options_for());
  Instant now{};
  const int rounds = *rc::gen::inRange(1, 400);
  for (int i = 0; i < rounds; ++i) {
    now += std::chrono::milliseconds(*rc::gen::element(1, 100, 5000, 400'000));
    RunSight sight{.time = now, .in_force = *rc::gen::arbitrary<bool>()};
    if (*rc::gen::arbitrary<bool>())
      sight.work =
          Progress{.run = static_cast<std::uint64_t>(*rc::gen::inRange(1, 3)),
                   .done = *rc::gen::element(0.0, 1.0, 2.0, 1e-300, 1e300, -5.0, NAN, INFINITY) +
                           *rc::gen::inRange(0, 50),
                   .time = now + std::chrono::seconds(*rc::gen::inRange(-100, 100))};
    if (*rc::gen::arbitrary<bool>()) sight.energy = Joules(*rc::gen::inRange(-10, 1000) * 10.0);
    const RunOrder order = tuner.next(sight);
    const auto& all = tuner.options().search.settings;
    RC_ASSERT(std::binary_search(all.begin(), all.end(), order.setting));
    RC_ASSERT(std::isfinite(tuner.profiling_cost().value()));
    for (const KnobReading& reading : tuner.readings())
      RC_ASSERT((std::isfinite(reading.rate) && std::isfinite(reading.power.value())));
  }
}

TEST(RunTuner, TakesHalfAMinuteWhereReportsAreFrequent) {
  ToyJob job;
  job.unit = 1;
  RunTuner tuner(options_for());
  const auto took = job.until_tuned(tuner, 1h);
  ASSERT_TRUE(took);
  // Each reading: 0.3 s until it is in force, 1 s to settle, 5 s in blocks of a second; 5 s more of
  // the first.
  EXPECT_LE(seconds(*took), 7.5 * static_cast<double>(tuner.readings().size()) + 5);
  EXPECT_LE(tuner.readings().size(), 5u);
}

TEST(RunTuner, EpochsOfMinutesAreMeasuredOnceEach) {
  ToyJob job;
  job.unit = job.work.rate * 180;  // three minutes
  RunTuner tuner(options_for());
  ASSERT_TRUE(job.until_tuned(tuner, 2h));
  const double epochs = job.done / job.unit;
  EXPECT_LE(epochs, static_cast<double>(tuner.readings().size()) + 1.2);
}

TEST(RunTuner, WithoutReportsItStaysAtTheHighestAndSaysSo) {
  ToyJob job;
  job.reports = false;
  RunTuner tuner(options_for());
  job.run(tuner, 10min);
  EXPECT_EQ(job.order.setting, 300);
  EXPECT_FALSE(job.order.profiling);
  EXPECT_NE(describe(job.order.why).find("cannot tune"), std::string::npos);
  EXPECT_FALSE(tuner.best());
  job.reports = true;  // late is not never
  EXPECT_TRUE(job.until_tuned(tuner, 5min));
}

TEST(RunTuner, FallsSilentAtTheHighestAndGoesOnAtTheBest) {
  ToyJob job;
  RunTuner tuner(options_for());
  ASSERT_TRUE(job.until_tuned(tuner, 5min));
  const double best = job.order.setting;
  ASSERT_LT(best, 300);
  job.reports = false;
  job.run(tuner, 3min);
  EXPECT_EQ(job.order.setting, 300);
  EXPECT_EQ(tuner.stage(), RunTuner::Stage::silent);
  job.reports = true;
  job.run(tuner, 5s);
  EXPECT_EQ(job.order.setting, best);
  EXPECT_EQ(tuner.tunings(), 1);
}

// Work whose rate falls off a cliff: what is measured first below it is left within seconds.
TEST(RunTuner, LeavesASettingThatIsTooSlow) {
  ToyJob job;
  job.work.knee = 290;
  auto options = options_for(300, {.kind = Selector::Kind::energy});
  options.search.start = 100;
  options.search.guard = 1.2;
  RunTuner tuner(options);
  while (job.order.setting == 300 || job.order.setting == 0) job.round(tuner);
  ASSERT_EQ(job.order.setting, 100);
  const Instant begin = job.now;
  while (job.order.setting == 100) job.round(tuner);
  EXPECT_LE(seconds(job.now - begin), 5);
  ASSERT_TRUE(job.until_tuned(tuner, 5min));
  EXPECT_GE(job.work.rate_at(job.order.setting) * 1.2, job.work.rate_at(300));
  EXPECT_FALSE(tuner.too_slow().empty());
}

// With reports minutes apart it does not wait for one that is late by more than the guard.
TEST(RunTuner, DoesNotWaitOutAnEpochThatIsTooSlow) {
  ToyJob job;
  job.work.knee = 290;
  job.unit = job.work.rate * 100;
  auto options = options_for(300, {.kind = Selector::Kind::energy});
  options.search.start = 100;  // five times slower
  RunTuner tuner(options);
  while (job.order.setting == 300 || job.order.setting == 0) job.round(tuner);
  const Instant begin = job.now;
  while (job.order.setting == 100) job.round(tuner);
  EXPECT_LT(seconds(job.now - begin), 1.25 * 1.5 * 100 + 5);
}

TEST(RunTuner, AnEvaluationIsNoChangeAndAnotherPhaseIs) {
  ToyJob job;
  job.unit = 0.3;
  RunTuner tuner(options_for());
  ASSERT_TRUE(job.until_tuned(tuner, 5min));
  job.pause_every = 60s;
  job.pause_at = job.now;
  job.pause = 25s;
  job.run(tuner, 30min);
  EXPECT_EQ(tuner.tunings(), 1);
  job.work.knee = 290;
  job.work.rate = 4;
  job.run(tuner, 15min);
  EXPECT_EQ(tuner.tunings(), 2);
  EXPECT_EQ(tuner.stage(), RunTuner::Stage::holding);
  const auto options = tuner.options();
  EXPECT_LE(price({}, Watts(300), job.work.at(job.order.setting)),
            best_price(options, job.work) * 1.01);
}

// A job of which every two minutes are other work is profiled for a tenth of its time, not for all.
TEST(RunTuner, DoesNotProfileForEverWhatKeepsChanging) {
  ToyJob job;
  job.unit = 0.3;
  RunTuner tuner(options_for());
  for (int i = 0; i < 60; ++i) {
    job.work.rate = i % 2 ? 10 : 4;
    job.run(tuner, 2min);
  }
  EXPECT_LE(seconds(tuner.profiling_time(job.now)), 0.12 * seconds(job.now.time_since_epoch()));
  EXPECT_GE(tuner.tunings(), 2);
}

TEST(RunTuner, BeginsAtTheBestThatIsKnownAndChecksIt) {
  ToyJob job;
  auto options = options_for();
  for (const double each : {150.0, 175.0, 200.0, 225.0, 300.0})
    options.known.push_back(job.work.at(each));
  options.known.push_back({137, 1, Watts(1)});  // of another list
  options.known.push_back({175, NAN, Watts(1)});
  RunTuner right(options);
  job.round(right);
  EXPECT_LT(job.order.setting, 300);
  job.run(right, 5min);
  EXPECT_EQ(right.tunings(), 0);
  EXPECT_EQ(right.profiling_cost(), Joules());
  EXPECT_EQ(right.stage(), RunTuner::Stage::holding);

  ToyJob other;
  other.work.knee = 120;  // another GPU than the one that was measured
  RunTuner wrong(options);
  other.run(wrong, 5min);
  EXPECT_EQ(wrong.tunings(), 1);
  EXPECT_LE(price({}, Watts(300), other.work.at(other.order.setting)),
            best_price(options, other.work) * 1.01);
}

// A setting that was right for what ran before may be too slow for what runs now.
TEST(RunTuner, WhatWasBestBeforeMustKeepTheGuard) {
  ToyJob job;
  job.work.knee = 120;
  auto options = options_for(300, {.kind = Selector::Kind::energy});
  options.search.guard = 1.2;
  RunTuner tuner(options);
  ASSERT_TRUE(job.until_tuned(tuner, 5min));
  ASSERT_LE(job.order.setting, 125);
  job.work.knee = 290;
  job.run(tuner, 20min);
  EXPECT_EQ(tuner.tunings(), 2);
  EXPECT_GE(job.work.rate_at(job.order.setting) * 1.2 * 1.01, job.work.rate_at(300));
}

TEST(RunTuner, WhatDoesNotComeIntoForceIsGivenUpForAWhile) {
  ToyJob job;
  job.obeys = false;
  RunTuner tuner(options_for());
  job.run(tuner, 1min);
  EXPECT_EQ(tuner.stage(), RunTuner::Stage::refused);
  EXPECT_EQ(job.order.setting, 300);
  EXPECT_NE(describe(job.order.why).find("into force"), std::string::npos);
  job.obeys = true;
  EXPECT_TRUE(job.until_tuned(tuner, 10min));
}

// By hand: 60 s at 300 W and the reference's rate, above the same work at the best.
TEST(RunTuner, CountsWhatProfilingCostAboveTheBest) {
  ToyJob job;
  RunTuner tuner(options_for());
  ASSERT_TRUE(job.until_tuned(tuner, 5min));
  const auto cost = [](double joules, double time) { return 0.5 * joules + 0.5 * 300 * time; };
  const double paid = cost(job.joules, seconds(job.now.time_since_epoch()));
  const KnobReading best = job.work.at(tuner.best()->setting);
  const double unit = cost(best.power.value(), 1) / best.rate;
  EXPECT_NEAR(tuner.unit_cost(best).value(), unit, 1e-9 * unit);
  // The first report is one unit late, and the spans begin there.
  EXPECT_NEAR(tuner.profiling_cost().value(), paid - unit * job.done, 0.01 * paid);
  EXPECT_GT(tuner.profiling_cost().value(), 0);
}

TEST(RunTuner, MaxSlowdownKeepsToIt) {
  ToyJob job;
  auto options = options_for(300, {.kind = Selector::Kind::max_slowdown, .slowdown = 1.05});
  RunTuner tuner(options);
  ASSERT_TRUE(job.until_tuned(tuner, 5min));
  EXPECT_GE(job.work.rate_at(job.order.setting) * 1.06, job.work.rate_at(300));
  EXPECT_LT(job.order.setting, 300);
}

}  // namespace
}  // namespace derate
