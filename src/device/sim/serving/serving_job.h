// An engine with its requests, as a job of a simulated machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/sim/serving/serving_requests.h"
#include "device/sim/serving/serving_work.h"
#include "device/sim/sim_gpu.h"

namespace derate {

struct ServingOrder {
  std::string engine;                     // of the chip's; empty: the first
  int most_running = 0, step_tokens = 0;  // 0: vLLM's default, the engine's own
  DrawnArrivals arrivals;
  std::string trace;  // CSV of requests whose sizes are drawn; empty: assumed sizes
};

class ServingJob {
 public:
  // Errors: not_found for an engine that the chip does not have; those of load_requests();
  // invalid_argument for arrivals that are more than kMostRequests.
  static constexpr double kMostRequests = 1e6;
  static Result<std::unique_ptr<ServingJob>> create(const ServingOrder& order, const SimChip& chip);

  // Begins on the GPU, which has no longer life than this. Once.
  SimGpu::TenantId start(SimGpu& gpu, std::optional<int> instance);
  // While the GPU has that tenant.
  const EngineCounters& counters() const { return work_->engine().counters(); }

 private:
  ServingJob() = default;

  ServingLaw law_;
  EngineLimits limits_;
  std::vector<ServingRequest> requests_;
  ServingWork* work_ = nullptr;
};

}  // namespace derate
