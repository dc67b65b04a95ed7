// Labels of a tenant, by which a bill can be made: process, user, container, pod, Slurm job, MIG
// instance.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace derate {

struct TenantLabels {
  std::optional<std::int64_t> pid;  // on this machine; empty for an instance that several share
  std::string process;              // the program's name
  std::string user;                 // by name, or the number where it has none
  std::string container;            // its id, the first 12 digits
  std::string name_space, pod;      // Kubernetes
  std::string job;                  // Slurm's number
  std::string instance;             // MIG UUID

  bool operator==(const TenantLabels&) const = default;
};

}  // namespace derate
