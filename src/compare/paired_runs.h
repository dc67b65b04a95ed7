// Two commands compared by pairs of runs, one of each: how much less energy, time and power one
// takes than the other, and when enough pairs were run. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/units.h"

namespace derate {

struct RunFigures {
  Duration time{};
  std::optional<Joules> energy;  // empty: not known

  std::optional<Watts> power() const;
};

struct RunPair {
  RunFigures a, b;
};

// The first command of pair number `pair` (0, 1, ...) is B in every second pair (ABBA), so that
// what changes evenly with time, such as a GPU that warms up, cancels.
inline constexpr bool b_runs_first(std::size_t pair) { return pair % 2 == 1; }

// Of B's figure to A's, by geometric means.
struct RatioInterval {
  double ratio = 1, least = 1, most = 1;

  bool has(double value) const { return least <= value && value <= most; }
};

// A figure of both sides. `ratio` is empty while there are too few pairs.
struct ComparedFigure {
  double mean_a = 0, mean_b = 0;  // seconds, joules or watts a run
  std::optional<RatioInterval> ratio;
};

struct RunComparison {
  std::size_t pairs = 0;
  double confidence = 0.9;  // of each ratio, however the number of pairs was chosen
  ComparedFigure time;
  std::optional<ComparedFigure> energy, power;  // empty: not known of each run
};
inline constexpr double kCompareConfidence = 0.9;
RunComparison compare_runs(std::span<const RunPair> pairs, double confidence = kCompareConfidence);

// Every ratio that is known lies within this share (0.02: 2 %) of its estimate, after whole rounds
// of ABBA.
bool is_narrow(const RunComparison& comparison, double share);
// Of the widest ratio: the share that is_narrow() would take. Empty: one is without end.
std::optional<double> widest_share(const RunComparison& comparison);

// "B takes 12 % less energy (10 to 14 %), 3 % more time (2 to 4 %), at 15 % less power (13 to 16
// %); each is 90 % sure".
std::string comparison_sentence(const RunComparison& comparison);
// "12 % less (90 % sure: 10 to 14 %)"; "between 2 % less and 1 % more" where both are possible.
std::string ratio_text(const RatioInterval& ratio, double confidence);

}  // namespace derate
