// Watch of the GPUs that go in step (govern/group), by the processes on them, what these launch and
// what the last records show.
#pragma once

#include <span>
#include <vector>

#include "govern/fleet/managed_gpu.h"
#include "govern/group/step_detector.h"
#include "govern/heartbeat_registry.h"
#include "service/workloads/workload_tracker.h"

namespace derate {

class StepWatch {
 public:
  static constexpr Duration kLookEvery = std::chrono::seconds(1);

  // The work of the GPUs, in their order, with what goes in step and who straggles.
  std::vector<GpuWork> with_steps(std::vector<GpuWork> work, Instant now,
                                  const WorkloadTracker& tracker, std::span<const ManagedGpu> gpus);

 private:
  StepDetector detector_;
  std::optional<Instant> next_;
  StepLook look_;
};

}  // namespace derate
