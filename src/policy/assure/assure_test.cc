#include "policy/assure/assure.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// Performance at a clock, relative to the highest.
using Curve = std::function<double(double share)>;  // of the highest clock
double follows(double share) { return share; }
double flat(double) { return 1; }

// A V100 whose memory utilisation is `full` times performance, read in whole percents.
class Rig {
 public:
  explicit Rig(const std::vector<std::string>& params = {}, double noise_points = 1,
               ModelCache* models = nullptr)
      : policy_(*make_test_policy("assure", kV100, params, models, account)),
        envelope_(test_envelope(kV100)),
        noise_(0, noise_points) {}

  // Runs on; the mean performance of that time.
  double run(Duration time, const Curve& curve, double full, int gpu_pct = 100) {
    double done = 0, ticks = 0;
    for (Duration at{}; at < time; at += 200ms, ++ticks) {
      follow();
      const double performance = curve(clock_ / highest_);
      if (now_ >= renewed_ + renewal) {
        renewed_ = now_;
        shown_ = std::round(100 * full * performance + noise_(random_));
      }
      const double read = shown_;
      const double points = frozen_points.value_or(read);
      Estimate estimate =
          test_reading(clock_.value(), gpu_pct, static_cast<int>(std::clamp(points, 0.0, 100.0)),
                       watts(performance));
      now_ += 200ms;
      estimate.time = now_;
      estimate.work = work;
      estimate.tenants = tenants;
      if (unread) estimate.gpu_utilisation.reset();
      if (kernels > 0) {
        // Told a tick after it has begun, by a count of its own.
        if (std::exchange(told_, kernels) == kernels) {
          done_ += 0.2 * performance * 1000 * kernels / work_in_launch(seconds(now_ - Instant()));
          beat_ = Progress{.source = ProgressSource::launches,
                           .run = run_,
                           .done = done_,
                           .time = now_,
                           .rate_uncertainty = 0.001};
        } else {
          ++run_;
        }
        estimate.work.progress = beat_;
        estimate.work.phase = beat_ && beat_->run == run_ ? phase_name() : said_;
        said_ = estimate.work.phase;
        estimate.launching = true;
      } else if (beats_) {
        done_ += 0.2 * performance;
        if (!beat_ || now_ - beat_->time >= beat_every)
          beat_ = Progress{.run = 1, .done = done_, .time = now_};
        estimate.work.progress = beat_;
      }
      if (package < 1) account->count(1, package, 0.9, 0.2);
      last_ = policy_->decide(estimate, envelope_);
      if (last_.kind == Decision::Kind::set) {
        if (last_.clock != requested_) requested_at_ = now_;
        requested_ = last_.clock;
        probing_ = last_.probing;
        if (rises_late == Duration{}) follow();
      }
      if (probing_) probed_ += 0.2;
      done += performance;
    }
    return done / ticks;
  }
  std::vector<Forecast> forecast(std::vector<double> deltas) const {
    return forecasts(*policy_, deltas, envelope_);
  }
  std::vector<ForecastPoint> points() const { return policy_->forecast(envelope_); }
  // From now on the work says exactly how far it is.
  void beat(bool on = true) { beats_ = on; }
  Duration beat_every{};
  // Performance that another domain of the work leaves it, of its part of the same account.
  std::shared_ptr<WorkAccount> account = std::make_shared<WorkAccount>();
  double package = 1;
  // Of the work, by what it launches: another number, another phase; 0: nothing is seen of that.
  int kernels = 0;
  std::function<double(double s)> work_in_launch = [](double) { return 1.0; };
  WorkStatus work;
  bool falling_power = true;
  Duration rises_late{};          // a higher clock comes so long after it was requested
  std::optional<Megahertz> tool;  // another tool holds that clock
  Duration renewal{};             // of the counters: between renewals they repeat themselves
  bool unread = false;            // no utilisation reading
  std::optional<int> tenants;
  std::optional<double> frozen_points;
  Megahertz clock() const { return clock_; }
  const Decision& last() const { return last_; }
  double probed() const { return probed_; }
  void narrow(Megahertz highest) {
    envelope_ = *Envelope::create(test_clocks(kV100), envelope_.lowest(), highest);
  }
  Megahertz highest() const { return highest_; }
  Megahertz lowest() const { return envelope_.lowest(); }

 private:
  std::unique_ptr<Policy> policy_;
  Envelope envelope_;
  Megahertz highest_ = envelope_.highest();
  std::mt19937_64 random_{11};
  std::normal_distribution<double> noise_;
  // As beside the measured applications' performance.
  double watts(double performance) const {
    const double x = std::log(highest_ / clock_);
    return falling_power ? 200 * performance * std::exp(-1.35 * x + 1.2 * x * x) : 200;
  }

  // The clock that the GPU has by now.
  void follow() {
    const bool higher = requested_ > clock_;
    if (tool)
      clock_ = *tool;
    else if (!higher || now_ >= requested_at_ + rises_late)
      clock_ = requested_;
  }

  Instant now_{};
  std::string phase_name() const {
    return kernels == 1 ? std::string() : "kernels " + std::to_string(kernels);
  }

  bool beats_ = false;
  std::optional<Progress> beat_;
  int told_ = 0;
  std::uint64_t run_ = 1;
  std::string said_;
  double done_ = 0;
  Megahertz clock_{952}, requested_{952};
  Instant requested_at_{}, renewed_{};
  double shown_ = 0;
  Decision last_;
  bool probing_ = false;
  double probed_ = 0;
};

// A reference that was read before the highest clock ran would have performance measured against a
// lower one (shared/found/promise.md, class A).
TEST(Assure, KeepsThePromiseWhereTheClockRisesLate) {
  for (const Duration late : {400ms, 800ms, 1000ms, 1500ms, 3000ms, 4600ms}) {
    for (const int work : {0, 1}) {
      Rig rig;
      rig.rises_late = late;
      double done = 0;
      for (int job = 0; job < 3; ++job) {
        rig.run(8s, work == 0 ? follows : flat, 0.5, 0);  // idle
        done += rig.run(60s, work == 0 ? follows : flat, 0.5) / 3;
      }
      // The loss until the clock has risen is the GPU's.
      EXPECT_GT(done, 0.9 - 0.3 * seconds(late) / 60) << seconds(late) << " s, work " << work;
      if (work == 1 && late < 2s)
        EXPECT_LT(rig.clock(), rig.highest() * 0.85) << seconds(late) << " s";
    }
  }
}

// Nothing is relative to a clock that only ran before the highest one came.
TEST(Assure, ExpectsNothingBeforeTheHighestClockRuns) {
  Rig late, held;
  late.rises_late = 3s;
  held.tool = Megahertz(1140);
  for (Rig* rig : {&late, &held}) {
    rig->run(8s, follows, 0.5, 0);
    for (int tick = 0; tick < 14; ++tick) {
      rig->run(200ms, follows, 0.5);
      EXPECT_FALSE(rig->last().expected_performance) << tick;
    }
  }
  late.run(10s, follows, 0.5);
  EXPECT_TRUE(late.last().expected_performance);
  // It never comes: then the ratio of the clocks bounds the loss.
  held.run(10s, follows, 0.5);
  EXPECT_GE(held.last().clock.value(), 0.9 * held.highest().value());
}

TEST(Assure, KeepsThePromiseWhereAnotherToolHoldsAClockAtFirst) {
  for (const Duration held : {3s, 10s, 30s}) {
    Rig rig;
    rig.run(8s, follows, 0.5, 0);
    rig.tool = Megahertz(1140);
    rig.run(held, follows, 0.5);
    rig.tool.reset();
    EXPECT_GT(rig.run(60s, follows, 0.5), 0.899) << seconds(held) << " s";
  }
}

// Of counters that repeat themselves a repeat is no reading, and what they show after a change of
// the clock is of the clock before (class C).
TEST(Assure, KeepsThePromiseWhereCountersAreRenewedSeldom) {
  for (const Duration renewal : {400ms, 1000ms, 2000ms}) {
    Rig rig;
    rig.renewal = renewal;
    rig.run(8s, follows, 0.5, 0);
    EXPECT_GT(rig.run(120s, follows, 0.5), 0.899) << seconds(renewal) << " s";
    Rig other;
    other.renewal = renewal;
    other.run(8s, flat, 0.5, 0);
    EXPECT_GT(other.run(120s, flat, 0.5), 0.95) << seconds(renewal) << " s";
    EXPECT_LT(other.clock(), other.highest() * 0.85) << seconds(renewal) << " s";
  }
}

TEST(Assure, LooksAtTheHighestClockFirst) {
  Rig rig;
  rig.run(200ms, follows, 0.5);
  EXPECT_EQ(rig.clock(), rig.highest());
  EXPECT_TRUE(rig.last().probing);
}

// Work without readings does not stay at the clock of the work before it.
TEST(Assure, WorkWithoutAReadingIsNotHeldAtTheClockOfTheWorkBefore) {
  Rig rig;
  rig.run(30s, flat, 0.9);
  EXPECT_LT(rig.clock(), rig.highest());
  rig.unread = true;
  rig.run(1s, follows, 0.9);
  EXPECT_EQ(rig.clock(), rig.highest());
  rig.run(10s, follows, 0.9);
  EXPECT_EQ(rig.clock(), rig.highest());
  rig.unread = false;
  // The work is judged anew, and its promise is kept.
  EXPECT_GT(rig.run(60s, follows, 0.9), 0.89);
}

TEST(Assure, AReadingThatFailsOnceChangesNothing) {
  Rig rig;
  rig.run(30s, flat, 0.9);
  const Megahertz held = rig.clock();
  for (int i = 0; i < 5; ++i) {
    rig.unread = true;
    rig.run(400ms, flat, 0.9);
    EXPECT_EQ(rig.clock(), held);
    rig.unread = false;
    rig.run(2s, flat, 0.9);
    EXPECT_EQ(rig.clock(), held);
  }
}

// No clock was held: a GPU without any utilisation reading, as with MIG, keeps its own clock.
TEST(Assure, WithoutAnyReadingNothingIsSet) {
  Rig rig;
  rig.unread = true;
  rig.run(10s, follows, 0.9);
  EXPECT_EQ(rig.last().kind, Decision::Kind::hold);
}

TEST(Assure, FlatWorkRunsAtTheLowestClock) {
  Rig rig;
  rig.run(60s, flat, 0.6);
  EXPECT_EQ(rig.clock(), rig.lowest());
}

TEST(Assure, ForecastsNothingOfWorkThatItDoesNotKnow) {
  Rig rig;
  EXPECT_TRUE(rig.forecast({0.1}).empty());
  rig.run(200ms, follows, 0.5);
  EXPECT_TRUE(rig.forecast({0.1}).empty());
}

// Whatever the work: the more may be lost the lower is the clock, and what is told lies within its
// own interval.
RC_GTEST_PROP(Assure, ForecastsAreInOrder, ()) {
  const double fixed = *rc::gen::map(rc::gen::inRange(0, 100), [](int p) { return p / 100.0; });
  Rig rig;
  rig.run(
      40s, [&](double share) { return fixed + (1 - fixed) * share; }, 0.5);
  const auto forecasts = rig.forecast({0.01, 0.03, 0.1, 0.2, 0.3, 0.5});
  RC_ASSERT(forecasts.size() == 6u);
  for (std::size_t i = 0; i < forecasts.size(); ++i) {
    const Forecast& one = forecasts[i];
    if (i > 0) RC_ASSERT(one.clock <= forecasts[i - 1].clock);
    RC_ASSERT(one.clock >= rig.lowest() && one.clock <= rig.highest());
    for (const ShareEstimate& share : {one.saving, one.loss})
      RC_ASSERT(share.low <= share.mean && share.mean <= share.high && share.high < 1);
    RC_ASSERT(one.loss.mean <= one.delta);
  }
}

// A point for each clock: the lower it is the less power it takes, and no performance is worse than
// what is sure of it.
RC_GTEST_PROP(Assure, ForecastsAPointForEachClock, ()) {
  const double fixed = *rc::gen::inRange(0, 100) / 100.0;
  Rig rig;
  RC_ASSERT(rig.points().empty());
  rig.run(
      40s, [&](double share) { return fixed + (1 - fixed) * share; }, 0.5);
  const auto points = rig.points();
  RC_ASSERT(points.front().clock == rig.lowest() && points.back().clock == rig.highest());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const ForecastPoint& one = points[i];
    if (i > 0) RC_ASSERT(one.clock > points[i - 1].clock);
    RC_ASSERT(one.power > Watts(0));
    RC_ASSERT(one.least <= Fraction(1));
    RC_ASSERT(one.least.value() <= std::min(1.0, one.performance().value()) + 0.01);
  }
  RC_ASSERT(points.front().power < points.back().power);
}

// What it said of another promise is what another that was promised that comes to.
TEST(Assure, AForecastComesTrue) {
  for (const double delta : {0.03, 0.05, 0.2}) {
    const auto work = [](double share) { return 0.4 + 0.6 * share; };
    Rig rig, other({"delta=" + std::to_string(delta)});
    rig.run(60s, work, 0.4);
    const Forecast told = rig.forecast({delta}).front();
    other.run(30s, work, 0.4);
    const double came = 1 - other.run(300s, work, 0.4);
    EXPECT_NEAR(told.clock / other.clock(), 1, 0.03) << delta;
    EXPECT_NEAR(told.loss.mean, came, 0.02) << delta;
    EXPECT_LT(told.loss.low, came) << delta;
    EXPECT_GT(told.loss.high, came) << delta;
  }
}

// Power that does not fall with the clock is no reason to lower it.
TEST(Assure, ALowerClockHasToSaveEnergy) {
  Rig rig;
  rig.falling_power = false;
  rig.run(60s, flat, 0.6);
  EXPECT_GT(rig.clock(), rig.lowest());
}

TEST(Assure, WithoutASignalItRestsOnTheClocksRatio) {
  Rig rig;
  EXPECT_GE(rig.run(120s, follows, 0.01), 0.9);
  EXPECT_NEAR(rig.clock() / rig.highest(), 0.9, 0.03);
}

TEST(Assure, LooksSeldomOnceItKnows) {
  Rig rig;
  rig.run(
      600s, [](double share) { return 0.4 + 0.6 * share; }, 0.4);
  EXPECT_LT(rig.probed(), 0.02 * 600);
}

// Work that begins to follow the clock has its clock back within seconds; but for what it has
// earned, where that may be spent.
TEST(Assure, WorkThatChangesIsNoticed) {
  Rig saves, strict, waits;
  strict.work.promises = {throughput(Fraction(0.1), "rule", true)};
  waits.work.may_wait = true;
  for (Rig* rig : {&saves, &strict, &waits}) {
    rig->run(60s, flat, 0.6);
    ASSERT_EQ(rig->clock(), rig->lowest());
    rig->run(5s, follows, 0.6);
  }
  EXPECT_GT(saves.clock(), saves.lowest());
  EXPECT_LT(saves.clock() / saves.highest(), 0.85);
  EXPECT_GE(saves.run(200s, follows, 0.6), 0.86);
  EXPECT_GT(strict.clock() / strict.highest(), 0.89);
  EXPECT_EQ(waits.clock(), strict.clock());
}

// Two phases that take turns are learned once; afterwards the highest clock is looked at only to
// know it better.
TEST(Assure, PhasesThatReturnAreKnownAgain) {
  Rig rig;
  const auto round = [&] {
    rig.run(8s, flat, 0.9);
    const Megahertz low = rig.clock();
    rig.run(8s, follows, 0.35);
    return std::pair(low, rig.clock());
  };
  for (int i = 0; i < 4; ++i) round();
  const double before = rig.probed();
  for (int i = 0; i < 10; ++i) {
    const auto [low, high] = round();
    EXPECT_EQ(low, rig.lowest());
    EXPECT_GT(high, 1.2 * low);
  }
  EXPECT_LT(rig.probed() - before, 0.1 * 160);
}

// What the work says of itself counts, whatever the counters show.
TEST(Assure, HeartbeatsWinOverCounters) {
  Rig rig;
  rig.beat();
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  EXPECT_GE(rig.run(120s, half, 0.01), 0.895);
  EXPECT_NEAR(half(rig.clock() / rig.highest()), 0.9, 0.012);
}

// A program may compute for a while before it says anything: what its counters hid is learned then.
TEST(Assure, HeartbeatsThatBeginLateWinOverCounters) {
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  for (const double memory : {0.01, 0.6}) {
    Rig rig;
    rig.run(30s, half, memory);
    rig.beat();
    rig.run(30s, half, memory);
    EXPECT_GE(rig.run(120s, half, memory), 0.895) << memory;
    EXPECT_NEAR(half(rig.clock() / rig.highest()), 0.9, 0.015) << memory;
  }
}

// Where it falls silent its counters are what there is.
TEST(Assure, CountersAreTakenUpAgainWhereHeartbeatsEnd) {
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  Rig rig;
  rig.beat();
  rig.run(60s, half, 0.6);
  rig.beat(false);
  EXPECT_GE(rig.run(120s, half, 0.6), 0.89);
  EXPECT_LT(half(rig.clock() / rig.highest()), 0.96);
  // The work comes to need the clock more, bit by bit: no jump tells.
  for (double bound = 0.5; bound < 0.95; bound += 0.02)
    rig.run(
        10s, [&](double share) { return 1 - bound + bound * share; }, 0.6);
  EXPECT_GE(rig.run(
                60s, [](double share) { return 0.05 + 0.95 * share; }, 0.6),
            0.88);
}

// Once a second is plenty (docs/heartbeats.md); what comes more seldom still is as if nothing were
// said.
TEST(Assure, HeartbeatsCountHoweverOftenTheyComeAndWhenTheyBegin) {
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  for (const Duration every : {200ms, 600ms, 1000ms, 2000ms})
    for (const Duration begin : {0ms, 1200ms, 5000ms, 30000ms}) {
      Rig rig;
      rig.beat_every = every;
      rig.run(begin, half, 0.01);
      rig.beat();
      rig.run(40s, half, 0.01);
      EXPECT_GE(rig.run(120s, half, 0.01), 0.895) << every / 1ms << " after " << begin / 1ms;
      EXPECT_LE(half(rig.clock() / rig.highest()), 0.92) << every / 1ms << " after " << begin / 1ms;
    }
}

TEST(Assure, HeartbeatsThatComeTooSeldomToLearnByChangeNothing) {
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  for (const Duration begin : {0s, 30s}) {
    Rig rig, silent;
    rig.beat_every = 20s;
    for (Rig* each : {&rig, &silent}) each->run(begin, half, 0.6);
    rig.beat();
    for (Rig* each : {&rig, &silent}) each->run(60s, half, 0.6);
    EXPECT_NEAR(rig.run(300s, half, 0.6), silent.run(300s, half, 0.6), 0.01);
  }
}

TEST(Assure, ThePromiseIsTheWorksOwnWhereItHasOne) {
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  Rig strict, loose;
  strict.work.promises = {throughput(Fraction(0.03))};
  loose.work.promises = {throughput(Fraction(0.3))};
  EXPECT_GE(strict.run(120s, half, 0.6), 0.97);
  EXPECT_LT(loose.run(120s, half, 0.6), 0.85);
}

// A package's uncore and the GPU's clock have one delta: both together keep it.
TEST(Assure, DomainsOfOneWorkShareThePromise) {
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  Rig alone, together;
  together.package = 0.95;
  alone.run(120s, half, 0.6);
  EXPECT_GE(together.run(300s, half, 0.6) * 0.95, 0.895);
  EXPECT_GT(together.clock(), alone.clock());
}

class TestCache final : public ModelCache {
 public:
  std::vector<PhaseModel> recall(const std::string& chip) override {
    std::vector<PhaseModel> out;
    for (const PhaseModel& model : kept)
      if (model.chip == chip) out.push_back(model);
    return out;
  }
  std::int64_t keep(const PhaseModel& model) override {
    PhaseModel copy = model;
    if (copy.id == 0) copy.id = static_cast<std::int64_t>(kept.size()) + 1;
    std::erase_if(kept, [&](const PhaseModel& one) { return one.id == copy.id; });
    kept.push_back(copy);
    return copy.id;
  }
  std::vector<PhaseModel> kept;
};

// A job that was seen before starts near its clock under another process, too: it is looked at at
// the highest clock, as any job, and not at others.
TEST(Assure, AJobSeenBeforeProbesLess) {
  TestCache cache;
  const auto half = [](double share) { return 0.5 + 0.5 * share; };
  double probed[2];
  for (double& one : probed) {
    Rig rig({}, 1, &cache);
    EXPECT_GE(rig.run(60s, half, 0.4), 0.9);
    one = rig.probed();
    rig.run(5s, half, 0, 0);  // idle: what was learned is kept
  }
  EXPECT_EQ(cache.kept.size(), 1u);
  EXPECT_LT(probed[1], 0.8 * probed[0]);
}

// Phases too short to follow are one mixture.
TEST(Assure, RestlessWorkKeepsItsPromise) {
  Rig rig;
  double done = 0;
  constexpr int kTurns = 120;
  for (int i = 0; i < kTurns; ++i) done += rig.run(600ms, follows, 0.4) + rig.run(600ms, flat, 0.8);
  EXPECT_GE(done / (2 * kTurns), 0.895);
}

// Two phases that take turns faster than a clock can follow: one clock, and the highest is seldom
// looked at.
TEST(Assure, OneClockForPhasesThatTakeTurns) {
  Rig rig;
  double done = 0, turns = 0;
  const auto turn = [&] {
    done += rig.run(1600ms, follows, 0.35) + rig.run(1600ms, flat, 0.9);
    turns += 2;
  };
  for (int i = 0; i < 15; ++i) turn();
  const double probed = rig.probed();
  std::vector<double> clocks;
  for (int i = 0; i < 20; ++i) {
    turn();
    clocks.push_back(rig.clock().value());
  }
  EXPECT_GE(done / turns, 0.895);
  EXPECT_LT(rig.probed() - probed, 0.03 * 20 * 3.2);
  const auto [low, high] = std::minmax_element(clocks.begin(), clocks.end());
  EXPECT_LT(*high / *low, 1.12);
  EXPECT_LT(*high, 0.95 * rig.highest().value());
}

// Launches tell phases: each is given its clock as soon as it is told, without a look.
TEST(Assure, APhaseThatLaunchesTellIsTakenUpAtOnce) {
  Rig rig;
  const auto turn = [&](int kernels, const Curve& curve, double full, Duration first) {
    rig.kernels = kernels;
    rig.run(first, curve, full);
    const Megahertz soon = rig.clock();
    rig.run(8s - first, curve, full);
    return std::pair(soon, rig.clock());
  };
  for (int i = 0; i < 3; ++i) {
    turn(1, follows, 0.35, 600ms);
    turn(2, flat, 0.9, 600ms);
  }
  const double probed = rig.probed();
  const auto [at_first, last] = turn(1, follows, 0.35, 600ms);
  const auto [flat_first, flat_last] = turn(2, flat, 0.9, 600ms);
  EXPECT_NEAR(at_first / last, 1, 0.08);
  EXPECT_NEAR(flat_first / rig.lowest(), 1, 0.03);
  EXPECT_NEAR(flat_last / rig.lowest(), 1, 0.03);
  EXPECT_LT(rig.probed() - probed, 1);
}

// Less work in each launch looks like speed. It is the same work at any one clock.
TEST(Assure, LaunchesWhoseWorkMovesAreNoSpeed) {
  const auto performance = [](const std::function<double(double s)>& work_in_launch) {
    Rig rig;
    rig.kernels = 1;
    rig.work_in_launch = work_in_launch;
    return rig.run(120s, follows, 0.35);
  };
  EXPECT_GE(performance([](double s) { return 1 - 0.23 * s / 120; }), 0.897);
  EXPECT_GE(performance([](double s) { return 1 - 0.05 * s / 120; }), 0.897);
  EXPECT_GE(performance([](double s) { return 1 - 0.05 * std::sin(s * 6.283 / 20); }), 0.897);
  EXPECT_LT(performance([](double s) { return 1 + 0.1 * s / 120; }), 0.94);
}

// What one phase saves the other may lose: over both the promise is kept.
TEST(Assure, PhasesThatLaunchesTellShareTheLoss) {
  Rig rig;
  double done = 0, lowest = 1;
  for (int i = 0; i < 8; ++i) {
    rig.kernels = 1;
    done += rig.run(8s, follows, 0.35);
    lowest = rig.clock() / rig.highest();
    rig.kernels = 2;
    done += rig.run(8s, flat, 0.9);
  }
  EXPECT_GE(done / 16, 0.898);
  EXPECT_LT(lowest, 0.87);
}

TEST(Assure, OneClockForShortPhasesThatLaunchesTell) {
  Rig rig;
  double done = 0;
  constexpr int kTurns = 36;
  for (int i = 0; i < kTurns; ++i) {
    rig.kernels = 1;
    done += rig.run(1600ms, follows, 0.35);
    rig.kernels = 2;
    done += rig.run(1600ms, flat, 0.9);
  }
  EXPECT_GE(done / (2 * kTurns), 0.898);
  EXPECT_LT(rig.clock() / rig.highest(), 0.86);  // a half of the work loses twice as much
}

// The same kernels, other work: what was learned of them holds no more.
TEST(Assure, AToldPhaseThatBecomesOtherWorkIsLearnedAnew) {
  Rig rig;
  rig.kernels = 1;
  rig.run(20s, flat, 0.6);
  EXPECT_EQ(rig.clock(), rig.lowest());
  rig.run(
      20s, [](double share) { return 0.5 * share; }, 0.6);
  EXPECT_GE(rig.clock() / rig.highest(), 0.87);
}

RC_GTEST_PROP(Assure, ToldPhasesKeepThePromiseHoweverLongTheyAre, ()) {
  Rig rig;
  const auto one = std::chrono::milliseconds(200 * *rc::gen::inRange(2, 60));
  const auto other = std::chrono::milliseconds(200 * *rc::gen::inRange(2, 60));
  const double steep = *rc::gen::inRange(0, 101) / 100.0, less = *rc::gen::inRange(0, 101) / 100.0;
  double done = 0, time = 0;
  while (time < 90) {
    rig.kernels = 1;
    done += rig.run(
                one, [&](double share) { return 1 - steep * (1 - share); }, 0.35) *
            seconds(one);
    rig.kernels = 2;
    done += rig.run(
                other, [&](double share) { return 1 - less * (1 - share); }, 0.8) *
            seconds(other);
    time += seconds(one + other);
  }
  RC_ASSERT(done / time >= 0.895);
}

// Of a GPU that several share, the counters show what all do together: each may follow the clock.
TEST(Assure, EachTenantKeepsTheClocksOwnRatio) {
  Rig rig;
  rig.tenants = 2;
  rig.run(60s, flat, 0.6);
  EXPECT_GE(rig.clock() / rig.highest(), 0.89);
}

// Counters stand still for some seconds of each job's start, when the highest clock is looked at:
// that they show the same there as at a low clock does not make the work flat.
TEST(Assure, CountersThatStandStillAreMissing) {
  Rig rig;
  double done = 0;
  for (int i = 0; i < 6; ++i) {
    rig.frozen_points.reset();
    done += rig.run(15s, follows, 0.6) * 15;
    rig.frozen_points = std::round(60 * rig.clock() / rig.highest());
    done += rig.run(5s, follows, 0.6) * 5;
  }
  EXPECT_GE(done / 120, 0.895);
}

// The governor narrows the envelope of a hot GPU: the promise is still of the highest clock.
TEST(Assure, AHotGpuChangesNotWhatThePromiseIsOf) {
  Rig rig;
  rig.run(
      60s, [](double share) { return 0.6 + 0.4 * share; }, 0.6);
  const Megahertz before = rig.clock();
  rig.narrow(Megahertz(1300));
  rig.run(
      20s, [](double share) { return 0.6 + 0.4 * share; }, 0.6);
  EXPECT_NEAR(rig.clock().value(), before.value(), 40);
}

TEST(Assure, AnIdleGpuIsLeftToTheRules) {
  Rig rig;
  rig.run(10s, flat, 0.6);
  rig.run(1s, flat, 0, 0);
  EXPECT_EQ(rig.last().kind, Decision::Kind::hold);
}

// Linear between flat and following the clock, any strength of signal: the promise is kept over the
// whole job, at any delta.
RC_GTEST_PROP(AssureProperty, ThePromiseIsKeptOverTheJob, ()) {
  const double slope = *rc::gen::inRange(0, 101) / 100.0, full = *rc::gen::inRange(5, 95) / 100.0;
  const double delta = *rc::gen::inRange(2, 31) / 100.0;
  Rig rig({"delta=" + std::to_string(delta)});
  const double performance = rig.run(
      60s, [&](double share) { return 1 - slope * (1 - share); }, full);
  RC_ASSERT(performance >= 1 - delta - 0.005);
}

}  // namespace
}  // namespace derate
