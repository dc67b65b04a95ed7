// An experiment made ready to run: names looked up, stress applied, sessions counted. Errors of an
// experiment are reported here, before the run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/experiment.h"
#include "core/envelope.h"
#include "lab/published_figures.h"
#include "lab/session.h"
#include "lab/stress.h"

namespace derate {

// What a stage is where the GPU is simulated.
struct Simulation {
  Circumstances circumstances;
  Envelope envelope;
  std::vector<Workload> workloads = {};
  std::map<std::string, std::string> tables_of = {};  // of tabled workloads, their folder
  std::vector<LaunchRecording> launches = {};         // of the jobs in turn
  std::string chip_file = {};                         // empty: a chip of the catalogue
};

// One chip in one cell of the stress grid.
struct Stage {
  std::string chip;  // a simulated one's name; of a real GPU, the name that it gives itself
  Cell cell;
  std::vector<std::string> apps;         // of the workloads, or of the commands of a real GPU
  std::optional<Simulation> simulation;  // empty: a real GPU
};

struct Plan {
  Experiment experiment;
  std::vector<PolicyChoice> policies;  // the baseline, max-freq, first; of a real GPU nv-boost
  std::vector<Stage> stages;
  std::vector<PublishedFigure> published;
  std::vector<std::string> warnings;  // for who runs it
  std::string tables_digest;  // of the text of measured tables and chip files; empty without any

  std::size_t session_count() const {
    return stages.size() * policies.size() * static_cast<std::size_t>(experiment.repetitions);
  }
};

// 16 hexadecimal digits that differ between texts by accident only: FNV-1a, 64 bits, no signature.
std::string text_digest(std::string_view text);

// `data_folder`: where the measured tables are. Tables and imports are looked for beside the
// experiment's file, too. `real_gpu`: what place real runs on.
// Errors: bad_config naming FILE:LINE:COLUMN and what is allowed; bad_data naming the table's cell.
Result<Plan> make_plan(const Experiment& experiment, const std::string& data_folder,
                       const std::string& real_gpu = "this GPU");

// A file of the experiment's, by its name in a key: beside the experiment, else in the data folder.
// Errors: bad_config naming both.
Result<std::string> find_beside(const Experiment& experiment, const std::string& key,
                                const std::string& name, const std::string& data_folder);

// One session of the plan, by number: stages, then policies, then repetitions. Every policy meets
// the same order, the same arrivals and the same noise in a repetition. The plan outlives it.
SessionKey session_key(const Plan& plan, std::size_t index);
const Stage& session_stage(const Plan& plan, std::size_t index);
const PolicyChoice& session_policy(const Plan& plan, std::size_t index);
std::uint64_t session_seed(const Plan& plan, std::size_t index);
// Positions in the stage's list of applications.
std::vector<std::size_t> session_order(const Plan& plan, std::size_t index);
// In place virtual.
SessionSpec session_spec(const Plan& plan, std::size_t index);

// The workloads that share the GPU with this one where the stage has tenants: the next in the list.
std::vector<const Workload*> tenants_of(const Simulation& stage, std::size_t workload);

}  // namespace derate
