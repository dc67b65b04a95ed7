// The judge of methods that split a GPU's power: worlds whose truth is known, every method on the
// same readings, figures as docs/attribute-results.md prints them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attrib/allocate_energy.h"
#include "attrib/split.h"
#include "lab/tenants/tenant_world.h"

namespace derate {

// Standard deviations on both sides of 90 % of a normal distribution.
inline constexpr double kBand90 = 1.6449;

// Error of one stretch of a run.
struct StretchScore {
  double wrong_j = 0;  // half the sum of |estimated - true| over ticks and tenants, above base
  double true_j = 0;

  // The misattributed share; empty while nothing was drawn.
  std::optional<double> share() const {
    return true_j > 0 ? std::optional(wrong_j / true_j) : std::nullopt;
  }
  void add(const StretchScore& other) {
    wrong_j += other.wrong_j;
    true_j += other.true_j;
  }
};

// Of one tick. What goes to a tenant that is not in the truth is wrong, too.
StretchScore misattributed(const Split& split, std::span<const TenantTruth> truth);

struct TenantScore {
  double estimated_j = 0, true_j = 0;  // above base, after 5 minutes
};

// Of one method in one run, or in several added up.
struct AttributionScore {
  StretchScore bill;                         // each tenant's energy of the whole run
  StretchScore minute, five_minutes, later;  // age of the run: below 60 s, below 300 s, after that
  // Of each run the tenant whose energy is furthest off, relative, of those that drew 15 W in the
  // mean over the run.
  std::vector<double> worst;
  std::vector<double> later_runs;  // of each run: the misattributed share after 5 minutes
  double squared_w = 0, absolute_relative = 0;  // after 5 minutes
  std::int64_t readings = 0, above_15_w = 0;
  double band_j = 0, banded_j = 0;       // half-widths of those bands, and the truth in them
  std::int64_t banded = 0, covered = 0;  // tenants in ticks with a 90 % band, the truth in it
  double unexplained = 0;                // sum over ticks after 5 minutes, and of how many
  std::int64_t foretold = 0;
  double null_w = 0;            // most that a tenant without work got, mean over a run
  std::optional<double> twins;  // largest difference of the twins' energies, relative
  bool twins_in_band = true;
  std::int64_t unsettled_mj = 0;  // sum of |board - parts|: 0 or the arithmetic is wrong
  std::int64_t ticks = 0;

  std::optional<double> rmse_w() const;
  std::optional<double> mape() const;      // of readings above 15 W
  std::optional<double> coverage() const;  // of the 90 % bands
  // Half the width of those bands, of what the tenants drew.
  std::optional<double> band_width() const;
  // The mean of PowerEstimate::unexplained.
  std::optional<double> mean_unexplained() const;
  void add(const AttributionScore& other);
};

// A method under judgement, made anew for each run. What it may know of the board beforehand is the
// maker's affair; `truth` is for the oracle alone and lives as long as the run.
struct JudgedMethod {
  std::string name;
  std::function<std::unique_ptr<SplitMethod>(const BoardFacts& facts, const TenantWorld& world)>
      make;
};

struct AttributionRun {
  const TenantScenario* scenario = nullptr;
  std::uint64_t seed = 1;
  Duration length = std::chrono::minutes(30);
  double driver_cost = 0;  // of an H200's: surveys read the counter less often; 0: each tick does
};

// Every method by its name; the learned ones "(4)" and "(all)" by how many workloads they were
// profiled on. The published ones are told base and context, ours is not. Errors: those of the
// profiling.
Result<std::vector<JudgedMethod>> judged_methods(const TenantScenario& scenario);

// What methods are told of the simulated board: its true base and context step.
BoardFacts true_board_facts(const SimChip& chip);

// Every method on the same readings, in the order of `methods`. Errors: those of the world.
Result<std::vector<AttributionScore>> judge(const AttributionRun& run,
                                            std::span<const JudgedMethod> methods);

}  // namespace derate
