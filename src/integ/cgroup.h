// What the control groups of a process say of whose it is. Pure: text in, labels out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace derate {

struct CgroupLabels {
  std::string container;  // the runtime's id, all of it
  std::string pod_uid;    // with dashes, however the path writes it; a static pod's has none
  bool in_kubernetes = false;
  std::string job;                   // Slurm's number
  std::string step;                  // "0", "batch", "extern", "interactive"
  std::optional<std::uint32_t> uid;  // of the job's owner, where the path has it

  bool operator==(const CgroupLabels&) const = default;
};

// A text of /proc/PID/cgroup: v1, v2 or both. The innermost container, pod and job count, wherever
// they stand; where hierarchies differ, the line that stands first in the file. Anything else,
// hostile text too, gives empty labels.
CgroupLabels parse_cgroup(std::string_view text);

// SLURM_JOB_ID in a text of /proc/PID/environ; empty when it is not there or is no number. A
// process sets its own environment: less to be trusted than its control group.
std::string job_in_environment(std::string_view text);

}  // namespace derate
