#include "compare/paired_runs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

namespace derate {
namespace {

RunFigures run_of(double time_s, double joules) { return {from_seconds(time_s), Joules(joules)}; }

// --- noise as measured runs have it --------------------------------------------------------------

struct Noise {
  const char* name;
  double spread;     // of a run's logarithm
  double kept = 0;   // of the run before (a machine's other load comes and goes)
  double drift = 0;  // a run (a GPU that warms up)
  double outliers = 0;
  double outlier_size = 0;  // of a run that was disturbed; it takes longer, never shorter
};
constexpr Noise kNoises[] = {
    {"quiet", 0.004},           {"usual", 0.012},           {"loud", 0.03},
    {"drifts", 0.01, 0, 0.002}, {"other load", 0.012, 0.6}, {"disturbed", 0.01, 0, 0, 0.08, 0.06},
};

class Machine {
 public:
  Machine(const Noise& noise, unsigned seed) : noise_(noise), random_(seed) {}
  RunFigures run(double time_s, double watts) {
    carried_ = noise_.kept * carried_ +
               noise_.spread * std::sqrt(1 - noise_.kept * noise_.kept) * normal_(random_);
    double log_time = std::log(time_s) + carried_ + noise_.drift * runs_++;
    if (uniform_(random_) < noise_.outliers)
      log_time += noise_.outlier_size * (0.5 + uniform_(random_));
    // Half of what a run takes longer is idle; readings of power have a noise of their own.
    const double log_power =
        std::log(watts) - 0.5 * carried_ + 0.4 * noise_.spread * normal_(random_);
    return run_of(std::exp(log_time), std::exp(log_time + log_power));
  }

 private:
  Noise noise_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double carried_ = 0;
  int runs_ = 0;
};

constexpr double kNarrow = 0.02;
constexpr std::size_t kMostPairs = 40;

std::vector<RunPair> pairs_until_narrow(const Noise& noise, unsigned seed, double time_ratio,
                                        double power_ratio) {
  Machine machine(noise, seed);
  std::vector<RunPair> pairs;
  while (pairs.size() < kMostPairs && !is_narrow(compare_runs(pairs), kNarrow)) {
    const auto a = [&] { return machine.run(20, 300); };
    const auto b = [&] { return machine.run(20 * time_ratio, 300 * power_ratio); };
    RunPair pair;
    if (b_runs_first(pairs.size())) {
      pair.b = b();
      pair.a = a();
    } else {
      pair.a = a();
      pair.b = b();
    }
    pairs.push_back(pair);
  }
  return pairs;
}

// Of a t interval of a fixed number of pairs that is as wide: its number. 90 %, two-sided.
int fixed_number(double half_width, double spread) {
  // Student's quantile at 95 % by its expansion around the normal one (Abramowitz and Stegun
  // 26.7.5), within 1 % from 3 degrees of freedom on.
  const auto t = [](double v) {
    const double x = 1.6448536;
    const double x3 = x * x * x, x5 = x3 * x * x, x7 = x5 * x * x;
    return x + (x3 + x) / (4 * v) + (5 * x5 + 16 * x3 + 3 * x) / (96 * v * v) +
           (3 * x7 + 19 * x5 + 17 * x3 - 15 * x) / (384 * v * v * v);
  };
  int n = 3;
  while (t(n - 1) * spread / std::sqrt(n) > half_width) ++n;
  return n;
}

double spread_of(const std::vector<RunPair>& pairs) {
  std::vector<double> logs;
  for (const RunPair& pair : pairs) logs.push_back(std::log(*pair.b.energy / *pair.a.energy));
  double mean = 0, squares = 0;
  for (const double log : logs) mean += log / static_cast<double>(logs.size());
  for (const double log : logs) squares += (log - mean) * (log - mean);
  return std::sqrt(squares / static_cast<double>(logs.size() - 1));
}

struct Judged {
  int all = 0, energy = 0, time = 0, power = 0;  // intervals that hold the truth
  std::vector<double> factors;                   // of the pairs that a fixed number would take
  double pairs = 0;

  double worst() const { return std::min({energy, time, power}) / static_cast<double>(all); }
};

Judged judge(const Noise& noise, int comparisons, unsigned seed) {
  Judged out;
  std::mt19937 draw(seed);
  std::uniform_real_distribution<double> ratio(0.7, 1.3);
  for (int i = 0; i < comparisons; ++i) {
    const double time = ratio(draw), power = ratio(draw);
    const auto pairs = pairs_until_narrow(noise, seed + static_cast<unsigned>(i), time, power);
    const RunComparison found = compare_runs(pairs);
    ++out.all;
    out.pairs += static_cast<double>(pairs.size()) / comparisons;
    out.energy += found.energy->ratio->has(time * power) ? 1 : 0;
    out.time += found.time.ratio->has(time) ? 1 : 0;
    out.power += found.power->ratio->has(power) ? 1 : 0;
    const double half = std::log(found.energy->ratio->most / found.energy->ratio->ratio);
    out.factors.push_back(static_cast<double>(pairs.size()) / fixed_number(half, spread_of(pairs)));
  }
  std::sort(out.factors.begin(), out.factors.end());
  return out;
}

// 200 comparisons a noise, each of which stops by itself.
TEST(PairedRuns, IntervalsHoldTheTruthHoweverTheyStop) {
  for (const Noise& noise : kNoises) {
    const Judged judged = judge(noise, 200, 4500);
    std::cout << fmt::format(
        "{}: energy {:.1f} %, time {:.1f} %, power {:.1f} % hold; {:.1f} pairs on average, {:.1f} "
        "times (at most {:.1f}) those of a fixed number\n",
        noise.name, 100.0 * judged.energy / judged.all, 100.0 * judged.time / judged.all,
        100.0 * judged.power / judged.all, judged.pairs, judged.factors[judged.factors.size() / 2],
        judged.factors.back());
    EXPECT_GE(judged.worst(), 0.88) << noise.name;
    EXPECT_LE(judged.factors[judged.factors.size() / 2], 3) << noise.name;
    EXPECT_LE(judged.factors.back(), 5) << noise.name;
  }
}

// --- properties ----------------------------------------------------------------------------------

std::vector<RunPair> any_pairs(std::size_t least) {
  std::vector<RunPair> out;
  const auto figure = [] { return *rc::gen::inRange(1, 100000) / 10.0; };
  for (std::size_t n = *rc::gen::inRange<std::size_t>(least, 20); n > 0; --n)
    out.push_back({run_of(figure(), figure()), run_of(figure(), figure())});
  return out;
}

RC_GTEST_PROP(PairedRunsProp, ChangedSidesGiveTheInverse, ()) {
  auto pairs = any_pairs(4);
  const RunComparison one = compare_runs(pairs);
  for (RunPair& pair : pairs) std::swap(pair.a, pair.b);
  const RunComparison other = compare_runs(pairs);
  const auto near = [](double x, double y) { return std::abs(x / y - 1) < 1e-9; };
  RC_ASSERT(near(one.energy->ratio->ratio, 1 / other.energy->ratio->ratio));
  RC_ASSERT(near(one.energy->ratio->least, 1 / other.energy->ratio->most));
  RC_ASSERT(one.time.mean_a == other.time.mean_b);
  // Power is energy by time.
  RC_ASSERT(near(one.power->ratio->ratio, one.energy->ratio->ratio / one.time.ratio->ratio));
}

RC_GTEST_PROP(PairedRunsProp, AFigureThatIsNotKnownOfEachRunIsNotKnown, ()) {
  auto pairs = any_pairs(4);
  const auto at = *rc::gen::inRange<std::size_t>(0, pairs.size());
  (*rc::gen::arbitrary<bool>() ? pairs[at].a : pairs[at].b).energy.reset();
  const RunComparison comparison = compare_runs(pairs);
  RC_ASSERT(!comparison.energy && !comparison.power);
  RC_ASSERT(comparison.time.ratio);
  RC_ASSERT(comparison_sentence(comparison).find("energy of a run is not known") !=
            std::string::npos);
}

TEST(PairedRuns, StopAfterWholeRoundsAlone) {
  std::vector<RunPair> pairs;
  for (int i = 0; i < 8; ++i) {
    pairs.push_back({run_of(10, 1000 + i % 2), run_of(11, 900)});
    EXPECT_EQ(is_narrow(compare_runs(pairs), 0.02), pairs.size() >= 4 && pairs.size() % 2 == 0);
    EXPECT_FALSE(is_narrow(compare_runs(pairs), 1e-6));
  }
}

TEST(PairedRuns, TheSentence) {
  RunComparison comparison{.pairs = 6,
                           .confidence = 0.9,
                           .time = {10, 10.3, RatioInterval{1.03, 1.02, 1.04}},
                           .energy = ComparedFigure{100, 88, RatioInterval{0.88, 0.86, 0.90}},
                           .power = ComparedFigure{10, 8.5, RatioInterval{0.85, 0.84, 0.87}}};
  EXPECT_EQ(
      comparison_sentence(comparison),
      "B takes 12 % less energy (10 to 14 %), 3 % more time (2 to 4 %), at 15 % less power (13 "
      "to 16 %); each is 90 % sure");
  comparison.energy->ratio = RatioInterval{0.995, 0.98, 1.01};
  comparison.time.ratio = RatioInterval{1.0312, 1.0291, 1.0333};
  EXPECT_EQ(comparison_sentence(comparison),
            "B takes between 2 % less and 1 % more energy, 3.1 % more time (2.9 to 3.3 %), at 15 % "
            "less power (13 to 16 %); each is 90 % sure");
  EXPECT_EQ(ratio_text(*comparison.energy->ratio, 0.9),
            "between 2 % less and 1 % more (90 % sure)");
  EXPECT_EQ(ratio_text(*comparison.power->ratio, 0.9), "15 % less (90 % sure: 13 to 16 %)");
  comparison.energy->ratio.reset();
  EXPECT_EQ(comparison_sentence(comparison),
            "After 6 pairs of runs the difference is not known: more are needed");
}

}  // namespace
}  // namespace derate
