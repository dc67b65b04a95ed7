// JSON fields of a recurring job's spec, for the messages that carry it.
#pragma once

#include "base/json_fields.h"
#include "tune/job.h"

namespace derate {

void visit_fields(FieldsOf<JobSpec> auto& m, auto&& visit) {
  visit_job_spec(m, [&](const JobField& field, auto& value) {
    JsonField out{field.key, field.summary, field.required};
    out.lowest = field.lowest;
    out.highest = field.highest;
    out.checked = false;  // check_job() does, which knows the other fields
    visit(out, value);
  });
}

}  // namespace derate
