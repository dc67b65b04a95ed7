// Names and labels of the tenants in a reading of a GPU, and the function that resolves them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/gpu_id.h"
#include "core/tenancy.h"
#include "core/tenant_labels.h"

namespace derate {

// The number of a batch job, as the application of a process reports it (docs/heartbeats.md).
struct SaidJob {
  std::string job;
  std::uint64_t started = 0;  // start of the process in clock ticks since boot; 0: not known
};
using SaidJobs = std::map<std::int64_t, SaidJob>;  // by PID

struct NamedTenant {
  std::string key;
  TenantLabels labels;

  bool operator==(const NamedTenant&) const = default;
};

struct TenantNames {
  std::vector<NamedTenant> instances, processes;  // as the Tenancy has them
};

// Who the tenants of a reading are. May block; called by one thread at a time.
using ResolveTenants =
    std::function<TenantNames(const GpuId& gpu, const Tenancy& tenancy, const SaidJobs& jobs)>;

}  // namespace derate
