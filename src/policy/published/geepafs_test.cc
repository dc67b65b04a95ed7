#include "policy/published/geepafs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using geepafs::Reading;
using Kind = Decision::Kind;

// --- The published fit once more, written from its description: the other opinion ----------------

using Real = long double;

struct RefLine {
  Real slope = 0, intercept = 0;
  Real at(Real x) const { return slope * x + intercept; }
  Real solve(Real y) const { return (y - intercept) / slope; }
};

struct RefModel {
  RefLine low, high;
  bool folded = false;
  Real knee = 0, error = 0;
};

// Remembers whether any comparison was so close that rounding could turn it.
class Judge {
 public:
  bool less(Real a, Real b) {
    if (std::abs(a - b) <= 1e-7L * (1 + std::abs(a) + std::abs(b))) close_ = true;
    return a < b;
  }
  bool close() const { return close_; }

 private:
  bool close_ = false;
};

Real error_of(const RefLine& line, const std::vector<Reading>& readings) {
  Real sum = 0;
  for (const Reading& r : readings) sum += std::pow(line.at(r.clock_mhz) - r.memory_util_pct, 2);
  return sum;
}

RefLine ref_line(const std::vector<Reading>& readings) {
  Real n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Reading& r : readings) {
    const Real f = r.clock_mhz, u = r.memory_util_pct;
    n += 1, x += f, y += u, xx += f * f, xy += f * u;
  }
  const Real det = n * xx - x * x;
  return {(n * xy - x * y) / det, (y * xx - x * xy) / det};
}

// y = h + s1 (x - knee) below, h + s2 (x - knee) above: the normal equations solved by hand.
RefModel ref_forced(Real knee, const std::vector<Reading>& low, const std::vector<Reading>& high) {
  Real n = 0, y = 0, u = 0, uu = 0, uy = 0, v = 0, vv = 0, vy = 0;
  for (const Reading& r : low) {
    const Real d = r.clock_mhz - knee;
    n += 1, y += r.memory_util_pct, u += d, uu += d * d, uy += d * r.memory_util_pct;
  }
  for (const Reading& r : high) {
    const Real d = r.clock_mhz - knee;
    n += 1, y += r.memory_util_pct, v += d, vv += d * d, vy += d * r.memory_util_pct;
  }
  const Real h = (y - u * uy / uu - v * vy / vv) / (n - u * u / uu - v * v / vv);
  const Real s1 = (uy - u * h) / uu, s2 = (vy - v * h) / vv;
  RefModel out{{s1, h - s1 * knee}, {s2, h - s2 * knee}, true, knee, 0};
  out.error = error_of(out.low, low) + error_of(out.high, high);
  return out;
}

RefModel ref_fit(const std::vector<Reading>& readings, const std::vector<double>& probes,
                 Judge& judge) {
  const RefLine straight = ref_line(readings);
  RefModel best{straight, straight, false, 0, error_of(straight, readings)};
  for (std::size_t turn = 2; turn + 2 <= probes.size(); ++turn) {
    std::vector<Reading> low, high;
    for (const Reading& r : readings) (r.clock_mhz < probes[turn] ? low : high).push_back(r);
    const RefLine a = ref_line(low), b = ref_line(high);
    RefModel fold{a, b, true, 0, error_of(a, low) + error_of(b, high)};
    fold.knee = (a.intercept - b.intercept) / (b.slope - a.slope);
    const bool outside = judge.less(fold.knee, probes[turn - 1]) ||
                         judge.less(probes[turn], fold.knee) || a.slope == b.slope;
    if (outside) fold = ref_forced(probes[turn - 1], low, high);
    const bool concave = judge.less(fold.high.slope * 1000, fold.low.slope * 1000);
    if (concave && judge.less(fold.error, best.error)) best = fold;
  }
  return best;
}

Real ref_bound(const RefModel& m, Real lowest, Real highest, Real p, Judge& judge) {
  if (!judge.less(0, m.low.slope * 1000)) return lowest;
  if (!m.folded) return m.low.solve(p * m.low.at(highest));
  if (!judge.less(0, m.high.slope * 1000)) return m.low.solve(p * m.low.at(m.knee));
  const Real target = p * m.high.at(highest);
  const Real bound = m.high.solve(target);
  return judge.less(m.knee, bound) ? bound : m.low.solve(target);
}

Real ref_performance(const RefModel& m, Real lowest, Real clock) {
  if (m.low.slope <= 0) return m.low.at(lowest);
  if (!m.folded || clock <= m.knee) return m.low.at(clock);
  return m.high.slope <= 0 ? m.low.at(m.knee) : m.high.at(clock);
}

double ref_efficient(const RefModel& m, const std::vector<Reading>& readings,
                     const std::vector<double>& probes, Judge& judge) {
  double best_clock = 0;
  Real best = 0;
  for (const double probe : probes) {
    Real watts = 0, n = 0;
    for (const Reading& r : readings)
      if (r.clock_mhz == probe) watts += r.power_w, n += 1;
    const Real efficiency = ref_performance(m, probes.front(), probe) / (watts / n);
    if (best_clock == 0 || judge.less(best * 1000, efficiency * 1000))
      best = efficiency, best_clock = probe;
  }
  return best_clock;
}

struct RefChoice {
  bool modelled = false, close = false;
  Real bound = 0, wanted = 0;
  double efficient = 0;
};

RefChoice ref_choose(const std::vector<Reading>& readings, const std::vector<double>& probes,
                     double cap, const geepafs::Settings& settings) {
  Judge judge;
  RefChoice out{false, false, settings.highest_mhz, 0, settings.efficient_mhz};
  if (std::any_of(readings.begin(), readings.end(),
                  [](const Reading& r) { return r.memory_util_pct > 0; })) {
    const RefModel model = ref_fit(readings, probes, judge);
    const Real limit = settings.reject_error * static_cast<double>(readings.size());
    out.modelled = !judge.less(limit, model.error);
    if (out.modelled) {
      out.bound =
          ref_bound(model, probes.front(), settings.highest_mhz, settings.performance, judge);
      out.efficient = ref_efficient(model, readings, probes, judge);
    }
  }
  out.wanted = std::max<Real>(std::min<Real>(out.bound, cap), out.efficient);
  out.close = judge.close();
  return out;
}

double ref_cap(double clock, double util, double highest, double p) {
  const double u = util < 1 ? 1 : util;
  return clock / ((1 - p) * (clock / highest + 100 / u - 1) + clock / highest);
}

const std::vector<double> kRound = {1000, 1100, 1200, 1300};  // probes for working by hand
const std::vector<double> kV100Probes = {952, 1147, 1335, 1530};

// Up then down, `repetitions` readings a probe.
std::vector<Reading> readings_of(const std::vector<double>& probes, int repetitions,
                                 const std::function<double(double)>& memory,
                                 const std::function<double(double)>& power) {
  std::vector<Reading> out;
  for (int i = 0; i < repetitions; ++i) {
    auto order = probes;
    if (i % 2 == 1) std::reverse(order.begin(), order.end());
    for (const double f : order) out.push_back({f, memory(f), power(f)});
  }
  return out;
}

// --- The choice ----------------------------------------------------------------------------------

// Counters of a GPU that saturates at some clock, or falls, or is all noise.
std::vector<Reading> random_readings(std::mt19937_64& random, const std::vector<double>& probes,
                                     int repetitions) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const double knee = uniform(probes.front() - 100, probes.back() + 100);
  const double level = uniform(0, 100), low = uniform(-0.05, 0.15), high = uniform(-0.05, 0.05);
  const double spread = uniform(0, 1) < 0.2 ? 40 : uniform(0, 6);
  const double watts = uniform(30, 300), rise = uniform(-0.5, 1.5);
  return readings_of(
      probes, repetitions,
      [&](double f) {
        const double y = level + (f < knee ? low : high) * (f - knee) + uniform(-spread, spread);
        return std::clamp(std::round(y), 0.0, 100.0);
      },
      [&](double f) { return watts * std::pow(f / probes.back(), rise) * uniform(0.9, 1.1); });
}

RC_GTEST_PROP(GeepafsChoice, AgreesWithAnIndependentImplementation, (unsigned seed)) {
  std::mt19937_64 random(seed);
  std::vector<double> probes = kV100Probes;
  if (seed % 3 == 0) probes = {720, 855, 982, 1117, 1245, 1440};
  if (seed % 7 == 0) probes = {952, 1335, 1530};
  geepafs::Settings settings{0.85 + 0.05 * (seed % 3), probes.back(), probes.front(), 100};
  const auto readings = random_readings(random, probes, 1 + static_cast<int>(seed % 4));
  const double cap = std::uniform_real_distribution<double>(800, 1700)(random);
  const RefChoice wanted = ref_choose(readings, probes, cap, settings);
  RC_PRE(!wanted.close);
  const auto got = geepafs::choose(readings, probes, cap, settings);
  RC_CLASSIFY(got.modelled && got.model.fold);
  RC_ASSERT(got.modelled == wanted.modelled);
  RC_ASSERT(got.efficient_mhz == wanted.efficient);
  const double bound = static_cast<double>(wanted.bound);
  RC_ASSERT(std::abs(got.bound_mhz - bound) <= 1e-6 * (1000 + std::abs(bound)));
  RC_ASSERT(std::abs(got.wanted_mhz - static_cast<double>(wanted.wanted)) <= 1e-2);
}

struct Worked {
  const char* name;
  double memory[4];  // at 1000, 1100, 1200, 1300 MHz
  double watts[4];
  double bound, efficient;
};

// By hand, p = 0.9, highest 1300 MHz.
const Worked kWorked[] = {
    // y = 0.05 x - 10; 0.9 x 55 = 49.5 = y(1190)
    {"rising line", {40, 45, 50, 55}, {100, 150, 200, 250}, 1190, 1000},
    {"falling line", {55, 50, 45, 40}, {100, 150, 200, 250}, 1000, 1000},
    // A falling model is saturation: performance counts as equal, so the least watts win.
    {"falling line, odd watts", {55, 50, 45, 40}, {100, 150, 90, 250}, 1000, 1200},
    {"flat line, ties go low", {50, 50, 50, 50}, {80, 80, 80, 80}, 1000, 1000},
    // 0.3 x - 290 and 0.08 x - 46 meet at 1109.1; 0.9 x 58 = 52.2 = 0.08 x 1227.5 - 46
    {"fold, bound above the knee", {10, 40, 50, 58}, {10, 80, 100, 140}, 1227.5, 1000},
    // 0.2 x - 160 and 0.01 x + 50 meet at 1105.3; 0.9 x 63 = 56.7 = 0.2 x 1083.5 - 160
    {"fold, bound below the knee", {40, 60, 62, 63}, {100, 110, 200, 250}, 1083.5, 1100},
    // 0.2 x - 160 and 85 - 0.02 x meet at 1113.64, at 62.727; 0.9 of it = 56.4545
    {"fold, falling above", {40, 60, 61, 59}, {100, 140, 141, 200}, 1082.2727272727, 1200},
    {"fold, falling throughout", {60, 59, 50, 40}, {100, 110, 120, 130}, 1000, 1000},
    // Convex: the single line 0.169 x - 166.6, 53.1 at 1300; 0.9 of it at 214.39 / 0.169
    {"convex", {10, 11, 30, 60}, {100, 100, 100, 100}, 1268.5798816568, 1300},
};

TEST(GeepafsChoice, WorkedByHand) {
  for (const Worked& w : kWorked) {
    SCOPED_TRACE(w.name);
    const auto at = [](const double(&values)[4]) {
      return [&values](double f) { return values[static_cast<int>(f - 1000) / 100]; };
    };
    const auto readings = readings_of(kRound, 2, at(w.memory), at(w.watts));
    const auto choice = geepafs::choose(readings, kRound, 1400, {0.9, 1300, 1000, 100});
    EXPECT_TRUE(choice.modelled);
    EXPECT_NEAR(choice.bound_mhz, w.bound, 1e-6);
    EXPECT_EQ(choice.efficient_mhz, w.efficient);
    EXPECT_NEAR(choice.wanted_mhz, std::max(w.bound, w.efficient), 1e-6);
  }
}

TEST(GeepafsChoice, TheCapLowersTheBoundAndTheEfficientClockOverridesBoth) {
  const auto linear = [](double f) { return 0.05 * f - 10; };  // bound 1190, as above
  const auto steep = [](double f) { return f * f; };
  const auto flat = [](double) { return 100.0; };
  const geepafs::Settings settings{0.9, 1300, 1000, 100};
  const auto choice = [&](auto power, double cap) {
    return geepafs::choose(readings_of(kRound, 2, linear, power), kRound, cap, settings).wanted_mhz;
  };
  EXPECT_NEAR(choice(steep, 1150), 1150, 1e-9);
  EXPECT_NEAR(choice(steep, 900), 1000, 1e-9);
  EXPECT_NEAR(choice(steep, 1300), 1190, 1e-6);
  EXPECT_NEAR(choice(flat, 1150), 1300, 1e-9);
}

TEST(GeepafsChoice, TheTwoPowerReadingsOfAClockAreAveraged) {
  auto readings = readings_of(
      kRound, 2, [](double) { return 50.0; }, [](double) { return 100.0; });
  readings[1].power_w = 60;   // 1100 MHz going up
  readings[6].power_w = 138;  // ... and down: 99 W, the least
  const auto choice = geepafs::choose(readings, kRound, 1400, {0.9, 1300, 1000, 100});
  EXPECT_EQ(choice.efficient_mhz, 1100);
}

TEST(GeepafsChoice, WithoutAModelTheCapDecides) {
  const geepafs::Settings settings{0.9, 1300, 1010, 100};
  const auto watts = [](double f) { return f; };
  auto readings = readings_of(
      kRound, 2, [](double) { return 0.0; }, watts);
  const auto check_unmodelled = [&] {
    const auto choice = geepafs::choose(readings, kRound, 1170, settings);
    EXPECT_FALSE(choice.modelled);
    EXPECT_EQ(choice.bound_mhz, 1300);
    EXPECT_EQ(choice.efficient_mhz, 1010);
    EXPECT_EQ(choice.wanted_mhz, 1170);
    EXPECT_EQ(geepafs::choose(readings, kRound, 900, settings).wanted_mhz, 1010);
  };
  check_unmodelled();
  // Going up 30, going down 8: each reading misses the mean by 11, 8 x 121 > 8 x 100.
  for (std::size_t i = 0; i < 8; ++i) readings[i].memory_util_pct = i < 4 ? 30 : 8;
  check_unmodelled();
  // By 10: not above the limit.
  for (std::size_t i = 0; i < 8; ++i) readings[i].memory_util_pct = i < 4 ? 30 : 10;
  EXPECT_TRUE(geepafs::choose(readings, kRound, 1170, settings).modelled);
}

TEST(GeepafsCap, Formula) {
  for (const double f : {952.0, 1147.0, 1530.0}) {
    EXPECT_NEAR(geepafs::utilisation_cap(f, 100, 1530, 0.90), 1530 / 1.10, 1e-9);
    EXPECT_NEAR(geepafs::utilisation_cap(f, 100, 1530, 0.95), 1530 / 1.05, 1e-9);
    EXPECT_EQ(geepafs::utilisation_cap(f, 0, 1530, 0.9), geepafs::utilisation_cap(f, 1, 1530, 0.9));
  }
  EXPECT_NEAR(geepafs::utilisation_cap(952, 100, 1530, 0.9), 1390.9, 0.05);
  // 952 / (0.1 (0.62222 + 1) + 0.62222)
  EXPECT_NEAR(geepafs::utilisation_cap(952, 50, 1530, 0.9), 1213.598, 1e-3);
  EXPECT_NEAR(geepafs::utilisation_cap(952, 1, 1530, 0.9), 89.9433, 1e-3);
}

// What the cap means: at it, busy time at the highest clock's pace has grown by 1 - p.
RC_GTEST_PROP(GeepafsCap, TimeGrowsByWhatMayBeLost, ()) {
  const double f = *rc::gen::inRange(135, 1531), u = *rc::gen::inRange(1, 101);
  const double p = *rc::gen::inRange(50, 100) / 100.0;
  const double cap = geepafs::utilisation_cap(f, u, 1530, p);
  const auto time_at = [&](double clock) { return u * f / clock + (100 - u); };
  RC_ASSERT(std::abs(time_at(cap) / time_at(1530) - (2 - p)) < 1e-9);
}

// --- The schedule --------------------------------------------------------------------------------

// A policy in closed loop with a GPU that obeys within a tick.
class Loop {
 public:
  explicit Loop(const std::vector<std::string>& assignments = {}, const TestChip& chip = kV100)
      : envelope(test_envelope(chip)), policy(*make_test_policy("geepafs", chip, assignments)) {}

  Decision tick() {
    Estimate e =
        test_reading(clock, gpu, static_cast<int>(std::round(memory(clock))), power(clock));
    e.node_gpu_utilisation = percent(gpu + others);
    const Decision decision = policy->decide(e, envelope);
    if (decision.kind == Kind::set) clock = decision.clock.value();
    return decision;
  }

  // What the next `n` ticks ask for; 0 where they hold.
  std::vector<double> asked(int n) {
    std::vector<double> out;
    for (int i = 0; i < n; ++i) {
      const Decision d = tick();
      out.push_back(d.kind == Kind::set ? d.clock.value() : 0);
    }
    return out;
  }

  Envelope envelope;
  std::unique_ptr<Policy> policy;
  double clock = 1530;
  int gpu = 100, others = 0;
  std::function<double(double)> memory = [](double) { return 0.0; };
  std::function<double(double)> power = [](double f) { return f / 5; };
};

const std::vector<double> kForced = {952, 1147, 1335, 1530, 1530, 1335, 1147, 952, 952};

std::vector<double> cycle(const std::vector<double>& forced, double chosen, std::size_t held) {
  std::vector<double> out = forced;
  out.push_back(chosen);
  out.insert(out.end(), held, 0.0);
  return out;
}

TEST(GeepafsSchedule, ProbesAtOnceAndEvery85Ticks) {
  Loop loop;
  const auto expected = cycle(kForced, 1395, 75);
  ASSERT_EQ(expected.size(), 85u);  // 17.0 s
  for (int i = 0; i < 4; ++i) EXPECT_EQ(loop.asked(85), expected) << "cycle " << i;
  EXPECT_EQ(std::count(expected.begin(), expected.end(), 952), 3);
}

TEST(GeepafsSchedule, OtherLists) {
  struct {
    std::vector<std::string> params;
    std::vector<double> forced;
    double chosen;
    std::size_t held;
  } const cases[] = {
      {{"delta=0.05"}, kForced, 1462, 75},
      {{"delta=0.15"}, kForced, 1335, 75},
      {{"probe_clocks=952,1530"}, {952, 1530, 1530, 952, 952}, 1395, 75},
      {{"repetitions=1"}, {952, 1147, 1335, 1530, 1530}, 1395, 75},
      {{"repetitions=3", "probe_clocks=952,1147,1530"},
       {952, 1147, 1530, 1530, 1147, 952, 952, 1147, 1530, 1530},
       1395,
       75},
      {{"interval=3"}, kForced, 1395, 15},
      {{"tick=0.1"}, kForced, 1395, 150},
      {{"min_clock=1402"}, kForced, 1402, 75},
      {{"delta=0.5"}, kForced, 1020, 75},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.params[0]);
    Loop loop(c.params);
    const auto expected = cycle(c.forced, c.chosen, c.held);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(loop.asked(static_cast<int>(expected.size())), expected);
  }
}

TEST(GeepafsSchedule, FourEvenProbesByDefault) {
  Loop loop({}, kA100);
  loop.clock = 1410;
  EXPECT_EQ(loop.asked(4), (std::vector<double>{1110, 1215, 1305, 1410}));
}

// A reading is booked to the clock that was set one tick before: with counters that follow the
// clock at once the fit is exact.
TEST(GeepafsSchedule, AReadingBelongsToTheClockSetOneTickBefore) {
  Loop loop;
  loop.power = [](double f) { return std::pow(f / 215, 3); };
  // 952: 40, 1147: 60, then 61 and 62: 0.9 x 62 = 55.8 on the low segment, at 1106.05.
  loop.memory = [](double f) { return f < 1000 ? 40 : f < 1200 ? 60 : f < 1400 ? 61 : 62; };
  EXPECT_EQ(loop.asked(85), cycle(kForced, 1110, 75));
}

TEST(GeepafsSchedule, OnlyTheReadingsOfTicks2To9Count) {
  const auto applied_with = [](int odd_tick) {
    Loop loop;
    loop.power = [](double f) { return std::pow(f / 215, 3); };
    const auto usual = [](double f) { return f < 1000 ? 40 : f < 1200 ? 60 : f < 1400 ? 61 : 62; };
    Decision applied;
    for (int tick = 1; tick <= 10; ++tick) {
      loop.memory = [&](double f) { return usual(f) - (tick == odd_tick ? 15 : 0); };
      applied = loop.tick();
    }
    return applied;
  };
  const Decision usual = applied_with(0);
  EXPECT_EQ(usual.clock, Megahertz(1110));
  for (int tick = 1; tick <= 10; ++tick) {
    SCOPED_TRACE(tick);
    const bool counts = tick >= 2 && tick <= 9;
    EXPECT_EQ(applied_with(tick).reason != usual.reason, counts);
  }
}

TEST(GeepafsSchedule, TheLargestCapOfAProbeCounts) {
  Loop loop;
  loop.gpu = 0;  // caps near 90 MHz
  const auto start = loop.asked(3);
  loop.gpu = 100;  // one reading of a busy GPU
  loop.tick();
  loop.gpu = 0;
  const auto rest = loop.asked(6);
  EXPECT_EQ(rest.back(), 1395);
  // The next probe starts anew.
  loop.gpu = 40;
  for (int i = 0; i < 75; ++i) EXPECT_EQ(loop.tick().kind, Kind::hold);
  loop.gpu = 0;
  EXPECT_EQ(loop.asked(10).back(), 952);
}

// --- The idle test -------------------------------------------------------------------------------

int ticks_until_probe(Loop& loop, int limit) {
  for (int i = 1; i <= limit; ++i)
    if (loop.tick().kind == Kind::set) return i;
  return 0;
}

TEST(GeepafsIdle, WaitsAnotherIntervalAndKeepsTheClock) {
  Loop loop;
  loop.asked(10);
  loop.gpu = 0;
  for (int i = 0; i < 400; ++i) {
    EXPECT_EQ(loop.tick().kind, Kind::hold);
    EXPECT_EQ(loop.clock, 1395);
  }
}

// The test is made only when the timer expires: work that came and went in between is not seen, and
// work that comes just after it waits for 15 s.
TEST(GeepafsIdle, LooksOnlyWhenTheTimerExpires) {
  Loop late;
  late.gpu = 0;
  late.asked(85);  // the timer expired at the end of tick 85: idle
  late.gpu = 100;
  const int waited = ticks_until_probe(late, 200);
  EXPECT_GE(waited, 75);
  EXPECT_LE(waited, 77);

  Loop blip;
  blip.gpu = 0;
  blip.asked(30);
  blip.gpu = 100;
  blip.asked(30);
  blip.gpu = 0;
  EXPECT_EQ(ticks_until_probe(blip, 90), 0);
}

// 16 ticks x 1 % on one GPU are enough, and so is the sum over the node's GPUs.
TEST(GeepafsIdle, OnePercentOver16Ticks) {
  for (const auto& [own, others, ticks, busy] : {std::tuple(1, 0, 16, true),
                                                 {1, 0, 15, false},
                                                 {0, 1, 16, true},
                                                 {16, 0, 1, true},
                                                 {15, 0, 1, false},
                                                 {0, 100, 1, true},
                                                 {7, 0, 3, true},
                                                 {7, 0, 2, false}}) {
    SCOPED_TRACE(testing::Message() << own << " " << others << " " << ticks);
    Loop loop;
    loop.asked(85 - ticks);
    loop.gpu = 0;
    Loop quiet;
    quiet.gpu = 0;
    quiet.asked(85 - ticks);
    quiet.gpu = own;
    quiet.others = others;
    quiet.asked(ticks);
    EXPECT_EQ(quiet.tick().kind == Kind::set, busy);
  }
}

// However busy the GPUs were before: the window keeps no residue of what left it.
RC_GTEST_PROP(GeepafsIdle, TheWindowIsExactOverIntegerReadings, (unsigned seed)) {
  std::mt19937_64 random(seed);
  Loop loop;
  for (int until_test = 85; until_test > 0; --until_test) {
    loop.gpu = static_cast<int>(random() % 101);
    loop.others = static_cast<int>(random() % 301);
    if (until_test <= 16) {  // 15 or 16 points over the window
      loop.gpu = until_test > 1 || seed % 2 == 0 ? 1 : 0;
      loop.others = 0;
    }
    loop.tick();
  }
  RC_ASSERT((loop.tick().kind == Kind::set) == (seed % 2 == 0));
}

// --- Whatever the readings -----------------------------------------------------------------------

RC_GTEST_PROP(Geepafs, StaysOnSupportedClocksInsideTheEnvelope, (unsigned seed)) {
  std::mt19937_64 random(seed);
  const TestChip& chip = kTestChips[seed % 3];
  const Envelope full = test_envelope(chip);
  auto policy = *make_test_policy("geepafs", chip);
  for (int tick = 0; tick < 300; ++tick) {
    const auto top =
        full.stepped(full.highest(), -static_cast<int>(random() % full.clocks().size()));
    const Envelope now =
        random() % 8 == 0 ? *Envelope::create(full.clocks(), full.lowest(), top) : full;
    const auto n = [&](unsigned limit) { return static_cast<int>(random() % limit); };
    Estimate e = test_reading(random() % 50 == 0 ? 0 : 135 + n(2000), n(101), n(101), n(700));
    if (n(20) == 0) e.memory_utilisation.reset();
    const Decision d = policy->decide(e, now);
    RC_ASSERT(d.kind != Kind::release);
    if (d.kind == Kind::set)
      RC_ASSERT(std::binary_search(now.clocks().begin(), now.clocks().end(), d.clock));
    if (d.expected_performance)
      RC_ASSERT(
          (d.expected_performance->value() <= 1 && std::isfinite(d.expected_performance->value())));
  }
}

// The whole path: counters that follow the clock, the largest cap, rounding up.
RC_GTEST_PROP(Geepafs, ChoosesWhatTheIndependentImplementationChooses, (unsigned seed)) {
  std::mt19937_64 random(seed);
  const Envelope envelope = test_envelope(kV100);
  auto policy = *make_test_policy("geepafs", kV100);
  const auto readings = random_readings(random, kV100Probes, 2);
  double cap = 0;
  Decision d = policy->decide(test_reading(1530, 50, 50, 100), envelope);
  for (const Reading& r : readings) {
    RC_ASSERT(d.clock.value() == r.clock_mhz);
    const int gpu = static_cast<int>(random() % 101);
    cap = std::max(cap, ref_cap(r.clock_mhz, gpu, 1530, 0.9));
    d = policy->decide(
        test_reading(r.clock_mhz, gpu, static_cast<int>(r.memory_util_pct), r.power_w), envelope);
  }
  d = policy->decide(test_reading(952, 50, 50, 100), envelope);
  const RefChoice wanted = ref_choose(readings, kV100Probes, cap, {0.9, 1530, 952, 100});
  const Megahertz clock(static_cast<double>(wanted.wanted));
  const bool on_a_step = std::abs((envelope.nearest(clock) - clock).value()) < 1e-6;
  RC_PRE(!wanted.close && (!on_a_step || wanted.wanted == wanted.efficient));
  RC_ASSERT(d.kind == Kind::set);
  RC_ASSERT(d.clock == envelope.clamp(clock));
}

TEST(Geepafs, HoldsWithoutReadingsAndGoesOnWhereItWas) {
  const auto strip = [](int field) {
    Estimate e = test_reading(1000, 100, 50, 100);
    if (field == 0) e.gpu_utilisation.reset();
    if (field == 1) e.memory_utilisation.reset();
    if (field == 2) e.sm_clock.reset();
    if (field == 3) e.power_usage.reset();
    return e;
  };
  for (int field = 0; field < 4; ++field) {
    SCOPED_TRACE(field);
    Loop loop;
    std::vector<double> asked = loop.asked(5);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(loop.policy->decide(strip(field), loop.envelope).kind, Kind::hold);
    const auto rest = loop.asked(80);
    asked.insert(asked.end(), rest.begin(), rest.end());
    EXPECT_EQ(asked, cycle(kForced, 1395, 75));
  }
}

TEST(Geepafs, RefusesProbesThatTheGpuCannotRun) {
  const auto bad = make_test_policy("geepafs", kV100, {"probe_clocks=952,1150,1530"});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Errc::invalid_argument);
  EXPECT_NE(bad.error().message.find("1150"), std::string::npos);
  EXPECT_NE(bad.error().message.find("1147"), std::string::npos);
  EXPECT_FALSE(make_test_policy("geepafs", kV100, {"probe_clocks=952"}).ok());
  EXPECT_FALSE(make_test_policy("geepafs", kV100, {"probe_clocks=757,952,1530"}).ok());
  for (const char* wrong : {"delta=0", "delta=0.6", "delta=p90", "repetitions=0", "tick=0"})
    EXPECT_FALSE(make_test_policy("geepafs", kV100, {wrong}).ok()) << wrong;
}

}  // namespace
}  // namespace derate
