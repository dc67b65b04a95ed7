// The findings of `derate compare` for people, as JSON and as CSV.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compare/paired_runs.h"
#include "core/gpu_id.h"

namespace derate::cli {

enum class CompareEnd : std::uint8_t { narrow, spent, signal };

struct CompareAccount {
  std::vector<std::string> a, b;  // the commands
  std::vector<GpuId> gpus;
  std::vector<RunPair> pairs;
  double precision = 0;
  CompareEnd end = CompareEnd::narrow;
  std::vector<std::string> troubles;
};

// A command as it is shown.
std::string words_text(const std::vector<std::string>& words);
std::string compare_text(const CompareAccount& account);
nlohmann::ordered_json compare_json(const CompareAccount& account);
// A heading and a line for each run, in the order in which they ran.
std::string compare_csv(const CompareAccount& account);

}  // namespace derate::cli
