#include "service/workloads/step_watch.h"

namespace derate {
namespace {

// Of GPUs that have been read; `tenants` are in their order.
std::vector<StepEvidence> evidence_of(const WorkloadTracker& tracker,
                                      std::span<const ManagedGpu> gpus) {
  const auto tenants = tracker.tenants();
  std::vector<StepEvidence> out;
  for (std::size_t at = 0; at < gpus.size() && at < tenants.size(); ++at) {
    if (!gpus[at].last || tenants[at].id.uuid != gpus[at].uuid()) continue;
    StepEvidence each{.gpu = at, .estimate = gpus[at].last->estimate};
    for (const GpuProcessTenant& tenant : tenants[at].tenants)
      each.processes.push_back(tenant.process);
    if (each.processes.size() == 1) {
      const ProcessId& process = each.processes[0];
      each.batch_job = tracker.job_of(process.pid).job;
      if (const LaunchRate* rate = tracker.launches_of(process, gpus[at].uuid()))
        each.launches = *rate;
    }
    out.push_back(std::move(each));
  }
  return out;
}

}  // namespace

std::vector<GpuWork> StepWatch::with_steps(std::vector<GpuWork> work, Instant now,
                                           const WorkloadTracker& tracker,
                                           std::span<const ManagedGpu> gpus) {
  if (!next_ || now >= *next_) {
    next_ = now + kLookEvery;
    look_ = gpus.size() < 2 ? StepLook() : detector_.update(now, evidence_of(tracker, gpus));
  }
  for (const std::size_t at : look_.may_wait)
    if (at < work.size()) work[at].status.may_wait = true;
  for (const StepGroup& group : look_.in_step) {
    for (const std::size_t at : group.gpus)
      if (at < work.size()) work[at].status.step_group = group.number;
    if (const auto& late = group.straggler; late && late->gpu < work.size())
      work[late->gpu].status.straggles = late->why;
  }
  return work;
}

}  // namespace derate
