// An experiment's figures over all its stages, pooled by application, and one policy against each
// of the others on the same jobs.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lab/job_pairs.h"
#include "lab/plan.h"

namespace derate {

// One policy over all stages. Each application has the same weight, in however many stages it ran;
// its mean is that of its jobs.
struct OverallResult {
  std::string label;
  double delta = 0;      // what it promises
  std::size_t apps = 0;  // by name
  int jobs = 0;          // none: nothing was run
  int judged = 0, broken = 0;
  std::size_t known_apps = 0;  // that its priors were made with (lab/known_apps.h)
  Figure saving, loss, gain;   // ratios
  double worst_job_loss = 0;
};

// Another policy's figures taken from the headline's, job by job: the same application, stage and
// repetition. Above 0 the headline saves, or loses, more. Pooled as OverallResult.
struct PairedDifference {
  std::string than;
  std::size_t apps = 0;
  int jobs = 0;
  Figure saving, loss;  // of the baseline's energy and performance, in ratios
};

struct Overall {
  // The policy that an account of the experiment is to begin with: assure, if it was run, in a row
  // whose priors were not made with these applications, if there is one; else the one with the
  // largest gain of those that kept their promise, or of all. Empty: nothing but the baseline ran.
  std::string headline;
  std::vector<OverallResult> policies;        // as in the plan, without the baseline
  std::vector<PairedDifference> differences;  // against each of the others that ran
};

Overall overall(const Plan& plan, std::span<const StoredJob> jobs);

}  // namespace derate
