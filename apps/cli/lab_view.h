// An experiment's figures as people and programs read them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/figures.h"
#include "lab/run_plan.h"

namespace derate::cli {

// The experiment that the results are of, read as if it lay where it was run from.
// Errors: those of the store and of make_plan().
Result<Plan> stored_plan(const LabStore& store, const std::string& data);

std::string lab_text(const Plan& plan, const std::vector<StageResult>& stages, bool apps);
nlohmann::ordered_json lab_json(const Plan& plan, const std::vector<StageResult>& stages);

// "132 sessions, 51 h of GPU time in 32 s"
std::string ran_text(const RunOutcome& ran, const std::string& results);

}  // namespace derate::cli
