// Comparison of policies on the same workloads, in simulation: the figures of design section 5,
// always with the oracle and the fixed-clock frontier next to them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/hindsight.h"
#include "lab/session.h"
#include "lab/sim_job.h"

namespace derate {

struct CompareSpec {
  const SimChip* chip = nullptr;
  std::vector<Workload> workloads;
  std::vector<PolicyChoice> policies;  // max-freq is run as the baseline whether named or not
  double delta = 0.10;                 // the promise: loss <= delta
  Duration work = std::chrono::seconds(120);
  Duration idle_before = std::chrono::seconds(20);
  Duration arrival_spread{};
  std::uint64_t seed = 1;  // of the first job; the next ones count up
  int seeds = 1;
  unsigned threads = 0;  // 0: as many as there are cores
};

// Of one application under one policy, means over the seeds; against max-freq with the same seed.
struct AppFigures {
  std::string app;
  double loss = 0;             // 1 - perf / perf(max-freq)
  double worst_job_loss = 0;   // over the seeds
  double efficiency_gain = 0;  // (perf / mean power) ratio - 1
  Joules energy{};
  double energy_ratio = 1;  // energy / energy(max-freq)
  Watts mean_power{};
  Duration time{};
  int broken_jobs = 0;  // loss > delta in a job of at least 30 s
};

// Of one policy, means over the applications.
struct PolicyFigures {
  std::string label;
  std::vector<AppFigures> apps;
  double mean_loss = 0;
  double worst_loss = 0;  // of an application
  std::string worst_app;
  double worst_job_loss = 0;
  double mean_gain = 0;
  double mean_energy_saving = 0;  // 1 - energy ratio
  Joules mean_energy{};           // of a job
  Watts mean_power{};
  int apps_over = 0;  // applications with mean loss > delta
  int broken_jobs = 0;
  int jobs = 0;
};

struct Comparison {
  std::vector<PolicyFigures> policies;  // as asked for
  HindsightResult oracle;               // per application the most efficient clock within delta
  std::vector<FixedForAll> frontier;    // every clock of the envelope
  Duration simulated{};                 // virtual GPU time
  Duration elapsed{};                   // real time it took
};

// Runs all jobs. `progress(done, all)` is called from this thread now and then.
Result<Comparison> compare(const CompareSpec& spec, Clock& clock,
                           const std::function<void(std::size_t, std::size_t)>& progress = {});

}  // namespace derate
