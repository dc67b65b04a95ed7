// The findings of `derate doctor`, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace derate::cli {

// The exit codes of doctor are these numbers.
enum class DoctorLevel { ok = 0, limit = 1, fail = 2 };

const char* to_string(DoctorLevel level);

struct DoctorFinding {
  DoctorLevel level = DoctorLevel::ok;
  std::string what;    // "driver"; of a GPU what of it: "power"
  std::string detail;  // what was seen
  std::string remedy;  // what to do; empty where the level is ok
  std::optional<int> gpu = {};
  std::string gpu_name = {};
  std::string brief =
      {};  // of a GPU's finding that is ok: for the one line of like GPUs; may be empty
};

DoctorLevel worst_of(const std::vector<DoctorFinding>& findings);

// One line for the machine's findings each, and one for GPUs of one name of which the same is to be
// told; with `each_gpu` a line for each finding.
std::string doctor_text(const std::vector<DoctorFinding>& findings, bool each_gpu);

// The findings one by one, without a schema.
nlohmann::ordered_json doctor_json(const std::vector<DoctorFinding>& findings);

}  // namespace derate::cli
