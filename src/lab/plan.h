// An experiment made ready to run: names looked up, stress applied, sessions counted. What is wrong
// with an experiment is told here, before anything runs.
#pragma once

#include <string>
#include <vector>

#include "config/experiment.h"
#include "core/envelope.h"
#include "lab/session.h"
#include "lab/stress.h"

namespace derate {

// One chip in one cell of the stress grid.
struct Stage {
  std::string chip;  // its name in the catalogue
  Cell cell;
  Circumstances circumstances;
  std::vector<Workload> workloads;
  Envelope envelope;
};

struct Plan {
  Experiment experiment;
  std::vector<PolicyChoice> policies;  // the baseline, max-freq, first
  std::vector<Stage> stages;

  std::size_t session_count() const {
    return stages.size() * policies.size() * static_cast<std::size_t>(experiment.repetitions);
  }
};

// `data_folder`: where the measured tables are. Tables and imports are looked for beside the
// experiment's file, too.
// Errors: bad_config naming FILE:LINE:COLUMN and what is allowed; bad_data naming the table's cell.
Result<Plan> make_plan(const Experiment& experiment, const std::string& data_folder);

// One session of the plan, by number: stages, then policies, then repetitions. Every policy meets
// the same order, the same arrivals and the same noise in a repetition. The plan outlives it.
SessionKey session_key(const Plan& plan, std::size_t index);
SessionSpec session_spec(const Plan& plan, std::size_t index);

// The workloads that share the GPU with this one where the stage has tenants: the next in the list.
std::vector<const Workload*> tenants_of(const Stage& stage, std::size_t workload);

}  // namespace derate
