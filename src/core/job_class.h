// Classes of work and what each may lose: the one table behind `class` in the configuration, words
// in DERATE_DELTA and docs/heartbeats.md.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace derate {

struct JobClass {
  const char* name;
  double delta;      // loss of performance allowed
  bool every_phase;  // in each phase, not over the whole job
  const char* summary;
};

std::span<const JobClass> job_classes();

// Null when there is none of that name.
const JobClass* find_job_class(std::string_view name);

// "training, inference, batch"
std::string job_class_names();

}  // namespace derate
