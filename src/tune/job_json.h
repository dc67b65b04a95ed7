// The JSON of a job's spec: as clients send it and as the file of jobs keeps it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "tune/job.h"

namespace derate {

nlohmann::ordered_json job_json(const JobSpec& job);
// Strict: an unknown field, one of a wrong type and a missing one are errors (invalid_argument);
// check_job() is for later.
Result<JobSpec> job_of(const nlohmann::ordered_json& json);

}  // namespace derate
