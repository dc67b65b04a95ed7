// GEEPAFS, the published algorithm as its authors coded it (EuroSys'24; github.com/zyjopensource/
// geepafs, dvfs.c), its constants as parameters. docs/policies/geepafs.md has it in words.
#pragma once

#include <vector>

#include "model/fold_line.h"

namespace derate {

// The parts of the algorithm that are functions, for tests and for reading.
namespace geepafs {

// One reading of a probe: the clock asked for one tick earlier and what the counters then said.
struct Reading {
  double clock_mhz = 0;        // as set
  double memory_util_pct = 0;  // integer percent
  double power_w = 0;
};

// The lowest clock at which the modelled utilisation keeps `performance` (0..1) of its value at
// `highest_mhz`; the lowest probe clock where the model falls with the clock.
double performance_bound(const FoldLine& model, double lowest_mhz, double highest_mhz,
                         double performance);

// Modelled utilisation at a probe clock with falling segments taken as saturation.
double modelled_performance(const FoldLine& model, double lowest_mhz, double clock_mhz);

// The clock at which a GPU that is busy `gpu_util_pct` of the time at `clock_mhz` would need
// 1/performance-ish more time: busy time scales as 1/f, idle time stays, time grows by
// (1 - performance).
double utilisation_cap(double clock_mhz, double gpu_util_pct, double highest_mhz,
                       double performance);

struct Choice {
  double bound_mhz = 0, cap_mhz = 0, efficient_mhz = 0;
  double wanted_mhz = 0;  // max(min(bound, cap), efficient), before rounding up
  bool modelled = false;  // false: no usable model, the cap decides
  FoldLine model;
};

struct Settings {
  double performance = 0.9;  // 1 - delta
  double highest_mhz = 0;
  double efficient_mhz = 0;   // taken when there is no model
  double reject_error = 100;  // mean squared error a reading, in points squared
};

// The fit and the choice after a probe. `probes` ascending; `cap_mhz` is the largest cap seen.
Choice choose(const std::vector<Reading>& readings, const std::vector<double>& probes,
              double cap_mhz, const Settings& settings);

}  // namespace geepafs
}  // namespace derate
