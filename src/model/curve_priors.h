// Priors of work's performance and power curves by clock, and of its counters' bias: means and
// covariances over a table of measured applications.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "model/progress_curve.h"

namespace derate {

struct CounterRow {
  double level;                // at the highest clock, a share
  std::array<double, 2> bias;  // c, d
};

// One measured application: coefficients in x and x^2 (scripts/fit_curve_priors.py).
struct CurveRow {
  const char *chip, *name;
  std::array<double, 2> performance, power;
  std::optional<CounterRow> memory;  // NVML's memory utilisation
  std::optional<CounterRow> dram;    // DRAM activity
  std::optional<CounterRow> pipe;    // activity of the busiest pipe x clock
};

std::span<const CurveRow> curve_rows();

// Letters of any case.
bool same_application(std::string_view a, std::string_view b);

// A counter from here up may have stopped to follow.
inline constexpr double kSaturated = 0.97;

// Means and covariances over the rows. A covariance is that of the next application, not of the
// rows: it allows for the few rows there are (see docs/policies/assure.md). Empty: no rows.
struct CurvePriors {
  CoefficientPrior performance, power;
  CoefficientPrior power_beside;  // what power says besides performance
  std::optional<CoefficientPrior> memory, memory_saturated, pipe;
  // Of the memory utilisation's bias with power, of a chip with rows enough to tell.
  std::optional<CrossCovariance> memory_power;
  // That a counter shows too much at low clocks, of what it shows at the highest, beside what the
  // rows tell of: to be allowed for in full.
  double overstated = 0;
  bool ignore_counters = false;  // they tell nothing of progress
  bool foreign = false;          // the rows are of other chips than the one that is governed
};

// Of a chip's rows, of all when it has none or none is named; without the application of that name,
// letters of any case.
CurvePriors curve_priors(std::string_view chip, std::string_view without = {});

}  // namespace derate
