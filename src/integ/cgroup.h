// Parser of /proc/PID/cgroup: container id, Kubernetes pod, Slurm job and step, systemd unit and
// user of a process, from the paths of its control groups. Pure: text in, labels out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace derate {

struct CgroupLabels {
  std::string container;             // the runtime's id, 64 hex digits
  bool in_kubernetes = false;        // below the kubelet's group
  std::string pod_uid;               // as the API writes it: with dashes; a static pod's has none
  bool in_slurm = false;             // below Slurm's group, of a job or not
  std::string job;                   // Slurm's number
  std::string step;                  // "0", "batch", "extern", "interactive"
  std::optional<std::uint32_t> uid;  // of the job's owner, where the path has it (v1)
  std::string unit;                  // the outermost service of systemd, "vllm.service"

  bool operator==(const CgroupLabels&) const = default;
};

// A text of /proc/PID/cgroup: v1, v2 or both. In a path the outermost of each kind counts, because
// whoever owns a group can make groups of any name below it; but a container below the kubelet's
// group goes before one around it (a cluster in a container). Below user.slice, which users own,
// only containers are read. Of several hierarchies the first in the file that names a pod (else a
// container) and the first that names a job count. Anything else, hostile text too, gives empty
// labels.
CgroupLabels parse_cgroup(std::string_view text);

// The user of a control group, by a text as above: below user.slice/user-UID.slice, which systemd
// creates at login, or Slurm's uid_UID. Only root can move a process into or out of it. Empty: no
// user, or root.
std::optional<std::uint32_t> user_of(std::string_view text);

// SLURM_JOB_ID in a text of /proc/PID/environ; empty when it is not there or is no number. A
// process may write its own environment: less to be trusted than its control group.
std::string job_in_environment(std::string_view text);

// "pod" + UID without "pod": 8-4-4-4-12 hex digits, or the 32 of a static pod.
bool is_pod_uid(std::string_view text);

}  // namespace derate
