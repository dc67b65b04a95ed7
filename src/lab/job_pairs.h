// Jobs against the baseline's of the same place, and means of such pairs with their intervals.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/job_record.h"
#include "lab/plan.h"
#include "store/lab_store.h"

namespace derate {

// A mean, and where 95 % of the means lie of samples drawn again from the same jobs (percentile
// bootstrap). Without an interval: of one job.
struct Figure {
  double mean = 0;
  std::optional<double> low, high;
};

// A value of each application's jobs.
using Samples = std::vector<std::vector<double>>;

// Means of means, applications and jobs drawn again; of one application, its jobs only. The same
// samples give the same figure each time.
Figure bootstrapped(const Samples& samples);

// Of one job, against the baseline's.
struct Relative {
  double loss = 0, gain = 0;
  double saving() const { return gain / (1 + gain); }
};
Relative relative_to(const JobRecord& full, const JobRecord& job);

// The jobs of one application under one policy, by repetition; of several in a row, by which.
using Repetitions = std::map<std::pair<int, int>, const StoredJob*>;
// Behind the ones of its session that are there: jobs are added in the order in which they ran.
void add_job(Repetitions& jobs, const StoredJob& one);

// The loss that a policy promises not to exceed; the experiment's if it has none of its own.
double promised_delta(const Plan& plan, const PolicyChoice& policy);

}  // namespace derate
