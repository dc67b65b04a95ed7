// Policies on a simulated engine at some loads: what they save of the highest clock, and what the
// clock makes late. Each seed has its own arrivals, the same for all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/serving/governed_run.h"

namespace derate {

// A window counts as kept with at most that: violations that the clock caused, and first tokens
// that came more than twice as late as at the highest clock.
inline constexpr double kCausedMost = 0.003;
inline constexpr int kLateMost = 1;
bool kept(const CausedByClock& window);

struct ServingPolicy {
  std::string label;
  const PolicyInfo* info = nullptr;
  ParamValues params;
};

struct CompareServing {
  const SimChip* chip = nullptr;
  ServingLaw law;
  EngineLimits limits;
  std::vector<ServingRequest> trace;  // thinned by each seed, `times` in a row
  double trace_s = 1800;
  int times = 2;
  std::vector<double> loads = {0.15, 0.4, 0.65};  // of the capacity at the highest clock
  std::vector<ServingPolicy> policies;
  Megahertz lowest, highest;  // clocks of the chip
  double quantile = 0.99;
  double slack = 1.5;  // promised: the edge at or above so many times the highest clock's quantile
  int seeds = 1;
  std::uint64_t first_seed = 1;
  double most_bad = 0.01;  // of the windows, in which the best constant clock may not be kept
};

// Over all seeds.
struct ServingFigures {
  std::string label;
  Megahertz clock{};  // of a constant one
  double joules = 0, generated_tokens = 0;
  double saved = 0;  // of the joules at the highest clock
  int windows = 0, kept = 0;
  int late_first_tokens = 0;
  double most_caused = 0;  // in a window
  double late = 0;         // share of tokens, whoever caused it

  double joules_per_token() const { return joules / generated_tokens; }
};

struct ServingLoad {
  double load = 0, rate = 0;  // requests a second
  double edge_s = 0;          // promised, by the first seed
  ServingFigures top;
  std::vector<ServingFigures> policies;
  std::optional<ServingFigures> best_constant;  // in hindsight; empty: none is kept
};

struct ServingComparison {
  double capacity = 0;  // requests a second
  std::vector<ServingLoad> loads;
};

// `watch(done, all)` is called now and then, by `clock`. Errors: those of the policies' creation.
Result<ServingComparison> compare_serving(
    const CompareServing& spec, Clock& clock,
    const std::function<void(std::size_t, std::size_t)>& watch = {});

}  // namespace derate
