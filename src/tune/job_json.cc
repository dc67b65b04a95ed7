#include "tune/job_json.h"

#include "tune/job_fields.h"

namespace derate {

Json job_json(const JobSpec& job) { return json_fields::object_of(job); }

Result<JobSpec> job_of(const Json& json) {
  return json_fields::message_of<JobSpec>(json, json_fields::Unknown::refused);
}

}  // namespace derate
