// The mark of simulated GPUs in JSON and in tables, wherever a GPU is shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace derate::cli {

// "simulated": true in each of these objects whose "uuid" is that of a simulated GPU.
void mark_simulated(nlohmann::ordered_json& gpus);

// "0", or "0 sim" for a simulated GPU: how a table names it.
std::string gpu_cell(int index, const std::string& uuid);

}  // namespace derate::cli
