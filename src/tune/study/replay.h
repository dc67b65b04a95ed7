// Replays jobs that recur from measured traces, in process: any policy, the baselines, and the best
// fixed pair with hindsight. Everything is charged: failed, stopped and profiling runs.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tune/knob.h"
#include "tune/sizes/size_policy.h"
#include "tune/study/trace.h"

namespace derate {

struct TraceReplay {
  double eta = 0.5;
  double beta = 2;
  int recurrences = 0;  // 0: 2 * batch sizes * power limits, as published
  std::optional<double> budget = {};
  // Of the logarithms of an epoch's time and power, as profiles read them. What is paid is true.
  double noise = 0;
};

struct Charge {
  double energy_j = 0, time_s = 0, cost_j = 0;

  Charge& operator+=(const Charge& other);
  friend Charge operator*(double k, const Charge& charge) {
    return {k * charge.energy_j, k * charge.time_s, k * charge.cost_j};
  }
};

// A batch size and a power limit.
struct SizeAndLimit {
  int batch_size = 0;
  double limit_w = 0;

  bool operator==(const SizeAndLimit&) const = default;
};

// What one seed came to.
struct ReplayRun {
  std::vector<Charge> recurrences;  // what each took, all its tries
  SizeAndLimit end;                 // of the last recurrence
  int tries = 0, unfinished = 0;    // recurrences that gave up after kMostTries
};

// A job's costs under fixed choices.
struct ExpectedCosts {
  SizeAndLimit best;  // the oracle: the least expected cost of a recurrence
  Charge oracle;      // expected, of one recurrence
  Charge by_default;  // expected, of one recurrence, at the default size and its highest limit
};
struct FixedCosts {
  int recurrences = 0;
  int limits = 0;             // the most that any batch size has
  ExpectedCosts early, late;  // before half of the recurrences, and from there on
  Charge oracle, by_default;  // of one recurrence: the mean of all

  bool is_late(int recurrence) const { return recurrence >= recurrences / 2; }
  const ExpectedCosts& at(int recurrence) const { return is_late(recurrence) ? late : early; }
};
FixedCosts fixed_costs(const TraceJob& job, const TraceReplay& options);

inline constexpr int kMostTries = 20;

// A policy of the table, or a baseline: "default", "grid", "grid-early-stop" (as published with
// Zeus's results: docs/tune-policies.md has their exact rules).
struct ReplayPolicy {
  std::string name, summary;
  std::function<ReplayRun(const TraceJob&, const TraceReplay&, std::uint64_t seed)> run;
};
const std::vector<ReplayPolicy>& replay_policies();
// Errors: not_found, naming those there are.
Result<const ReplayPolicy*> find_replay_policy(std::string_view name);

inline constexpr std::size_t kLastRuns = 5;

// How one policy did over all seeds.
struct ReplayFigures {
  Charge mean;                       // cumulative over the recurrences
  double cost_sd = 0;                // of cumulative cost, between seeds
  double regret = 0, regret_sd = 0;  // in runs of the oracle
  double late_regret = 0;            // of the second half of the recurrences, in its oracle's
  Charge last;                       // mean of the last kLastRuns recurrences
  // Of each seed, ascending: the energy of its last recurrences against that of the default's with
  // the same seed, as the paper has it.
  std::vector<double> last_energy_savings;
  // From which recurrence on (1 is the first) the mean cumulative cost stays at or below the
  // default's expectation; empty: never.
  std::optional<int> break_even;
  double end_is_oracle = 0;  // share of seeds
  int unfinished = 0;        // recurrences that gave up
};
// `by_default`: the default's runs with the same seeds, or none.
ReplayFigures replay_figures(const TraceJob& job, const TraceReplay& options,
                             std::span<const ReplayRun> runs,
                             std::span<const ReplayRun> by_default = {});

// By how many standard errors of the difference `mine` has more regret than `other`, of as many
// seeds. Runs that do not vary have errors of kLeastError.
inline constexpr double kLeastError = 0.01;  // runs of the oracle
double standard_errors_above(const ReplayFigures& mine, const ReplayFigures& other, int seeds);

// One run at the default batch size, its power limit tuned from the first epoch on.
struct SingleRun {
  double energy_saving = 0, slowdown = 0, cost_saving = 0;  // expected, against the highest limit
  double limit_w = 0;
  int readings = 0;
};
// `hindsight`: at the best limit from the start, without profiling.
SingleRun single_run(const TraceJob& job, const TraceReplay& options, const Selector& selector,
                     bool hindsight);

}  // namespace derate
