// The judge of a policy's estimate of its saving. It compares the estimate with a job of the same
// application in the same repetition under the baseline, in virtual time.
#pragma once

#include <string>
#include <vector>

#include "core/saving.h"
#include "lab/plan.h"

namespace derate {

// One job. `estimate` is empty where the policy gave none.
struct JudgedSaving {
  std::string app;
  double saving = 0, performance = 0;  // in truth
  std::optional<ShareEstimate> saving_estimate, performance_estimate;
};

// One policy in one stage. Errors in shares of the energy: estimate - truth.
struct SavingFigures {
  std::string chip, cell, policy;
  std::vector<JudgedSaving> jobs;
  int unknown = 0;         // jobs without an estimate
  double truth = 0;        // mean saving
  double bias = 0;         // mean error
  double nine_in_ten = 0;  // 90 % of the jobs are within it, either side
  double covered = 0;      // share of the jobs whose truth lies in the interval
  double half_width = 0;   // mean of the intervals'
};

// Every policy of the plan but the baseline. `dry_run`: what a dry run says would be saved, against
// what the same policy saves. Errors: those of its sessions.
Result<std::vector<SavingFigures>> judge_savings(const Plan& plan, bool dry_run = false,
                                                 unsigned threads = 0);

// Its jobs counted; `jobs` is as it was.
void sum_up(SavingFigures& figures);

}  // namespace derate
