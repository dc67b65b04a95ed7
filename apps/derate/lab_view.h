// An experiment's figures as people and programs read them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/figures.h"
#include "lab/overall.h"
#include "lab/run_plan.h"

namespace derate::cli {

// The experiment that the results are of, read as if it lay where it was run from.
// Errors: those of the store and of make_plan().
Result<Plan> stored_plan(const LabStore& store, const std::string& data);

// "V100-SXM2, counter window 1 s"
std::string stage_title(const StageResult& stage);

struct LabView {
  bool apps = false;         // every application
  bool cells = false;        // of a stress grid every cell with all its figures, not the grid alone
  std::size_t sessions = 0;  // that have run
};

std::string lab_text(const Plan& plan, const std::vector<StageResult>& stages, const LabView& view);
// Of each policy its gain, worst loss and broken promises by the values of the axes.
std::string grids_text(const Plan& plan, const std::vector<StageResult>& stages);

// Which run the results are of.
struct LabOrigin {
  std::string version = {};  // of the program that ran it
  std::string day = {};      // when the run began, UTC; empty: an older program did not keep it
  std::size_t sessions = 0;  // that have run
};
Result<LabOrigin> origin_of(const LabStore& store);

nlohmann::ordered_json lab_json(const Plan& plan, const std::vector<StageResult>& stages,
                                const Overall& overall, const LabOrigin& origin);

// "132 sessions, 51 h of GPU time in 32 s"
std::string ran_text(const RunOutcome& ran, const std::string& results);

}  // namespace derate::cli
