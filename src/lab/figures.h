// The figures of an experiment, as the design's section 5 defines them, from its stored jobs. Each
// job stands against the baseline's job of the same application in the same repetition. Failed jobs
// are counted and never averaged.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/job_record.h"
#include "lab/hindsight.h"
#include "lab/job_pairs.h"
#include "lab/plan.h"
#include "store/lab_store.h"

namespace derate {

// A shorter job says nothing of a promise.
inline constexpr Duration kShortestJudged = std::chrono::seconds(30);

// One application under one policy: means over its jobs.
struct AppResult {
  std::string app;
  int jobs = 0, failed = 0;
  std::string error;  // of the first that failed
  int judged = 0;     // jobs that take at least 30 s under the baseline
  int broken = 0;     // loss > delta, of these
  Figure loss;        // 1 - perf / perf(max-freq)
  Figure gain;        // (perf / mean power) ratio - 1
  double saving = 0;  // of energy
  double worst_job_loss = 0;
  std::int64_t worst_job = 0;  // its number in the results
  Duration time{};
  Joules energy{};
  std::optional<Joules> sensed_energy;
  double probing_share = 0, policy_cpu_share = 0;  // of the job's time
  double changes_per_minute = 0;                   // of the clock
  double rate = 0;                                 // of work, a second
  std::string work_unit;                           // as in JobRecord
  std::optional<Megahertz> mean_clock;
  Activity activity;  // means; empty where a job lacks it

  double slowdown() const { return 1 / (1 - loss.mean) - 1; }
  Watts mean_power() const { return energy / time; }
};

// One policy: means over its applications; the interval draws applications and their jobs again.
struct PolicyResult {
  std::string label;
  double delta = 0;  // what it promises; the experiment's where it has none of its own
  std::vector<AppResult> apps;
  Figure loss, gain;
  double saving = 0;
  double worst_loss = 0;  // of an application's mean
  std::string worst_app;
  double worst_job_loss = 0;
  int jobs = 0, failed = 0;  // none of either: nothing was run
  int judged = 0, broken = 0, apps_over = 0;
  double probing_share = 0, policy_cpu_share = 0, changes_per_minute = 0;

  // Empty where no job was long enough to be judged.
  std::optional<double> broken_share() const {
    return judged > 0 ? std::optional(static_cast<double>(broken) / judged) : std::nullopt;
  }
};

struct StageResult {
  std::string chip, cell;
  std::vector<std::string> apps;
  std::vector<PolicyResult> policies;  // as in the plan, the baseline too
  struct AppHindsight {
    std::string app;
    FixedClock oracle;
    Outcome bound;
  };
  std::vector<AppHindsight> hindsight;  // in the order of the stage; none of real work
  // The best clock for each; the best mixture of two for each.
  std::optional<HindsightResult> oracle, bound;
  std::vector<FixedForAll> frontier;  // ascending
};

// One for each stage of the plan, in its order.
std::vector<StageResult> figures(const Plan& plan, std::span<const StoredJob> jobs);

}  // namespace derate
