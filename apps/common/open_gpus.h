// Where the concrete GPUs are made: real ones through NVML, or simulated ones.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/clock_control.h"
#include "device/nvml/nvml_device.h"
#include "device/nvml/nvml_thread.h"
#include "device/sim/sim_device.h"
#include "device/telemetry_source.h"
#include "govern/fleet/open_gpu.h"
#include "options.h"

namespace derate::cli {

// The real GPUs that `choice` names (all when empty; a MIG instance's UUID names its GPU), in its
// order, each on a thread of its own.
// Errors: those of NVML; gpu_stuck when the driver does not answer; not_found when there is no GPU
// or none of that name. `alive` is called now and then while the driver is waited for.
Result<OpenGpus> open_nvml_gpus(
    const std::string& choice, NvmlPatience patience = {},
    const std::function<void()>& alive = [] {});

// What a loop that governs many GPUs affords: a slow one is read again at the next tick.
inline constexpr NvmlPatience kLoopPatience{std::chrono::milliseconds(50),
                                            std::chrono::milliseconds(500)};

// The same for a caller that cannot wait: begins on a thread of its own, which is left behind when
// the driver hangs.
class Opening {
 public:
  Opening(std::string choice, NvmlPatience patience);
  // The outcome once it is there.
  std::optional<Result<OpenGpus>> poll();

 private:
  std::future<Result<OpenGpus>> outcome_;
};

// One real GPU, opened on the calling thread without a call to any other: for a process that may
// hang.
Result<std::unique_ptr<KnobControl>> open_to_restore(const DomainId& domain);

// Simulated GPUs with their workload not yet started. Errors: not_found for the chip or workload.
struct SimSetup {
  const SimChip* chip = nullptr;
  Workload workload;
};
Result<SimSetup> find_sim_setup(const SimCliOptions& options);
// Those that `choice` names, all when empty. Errors: as select_gpus().
Result<OpenGpus> open_sim_gpus(const SimSetup& setup, const SimCliOptions& options,
                               const std::string& choice, Clock& clock);

}  // namespace derate::cli
