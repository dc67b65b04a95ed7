// Figures of an experiment as JSON (docs/json.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lab/overall.h"

namespace derate {

// "mean", and "low" and "high" where there is an interval.
nlohmann::ordered_json figure_json(const Figure& figure);

// Adds "headline", "overall" and "differences", and of what the experiment is: "simulated",
// "experiment_digest", "tables_digest" and "workload_sources".
void add_overall(nlohmann::ordered_json& to, const Plan& plan, const Overall& overall);

}  // namespace derate
