// The figures of `derate lab attribution` as people and programs read them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/tenants/attribution_bench.h"

namespace derate::cli {

// A table a scenario, one over all, and the bars.
std::string attribution_text(const AttributionBench& bench,
                             const std::vector<ScenarioResult>& results);
nlohmann::ordered_json attribution_json(const AttributionBench& bench,
                                        const std::vector<ScenarioResult>& results);

// "7.5", whose heading has the sign; a dash where there is none.
std::string bare_share_text(std::optional<double> share);

}  // namespace derate::cli
