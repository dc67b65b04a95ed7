// Where the concrete GPUs are made: real ones through NVML, or simulated ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/clock_control.h"
#include "device/sim/sim_device.h"
#include "device/telemetry_source.h"
#include "options.h"

namespace derate::cli {

// One GPU as the verbs use it. `control` is null where this version does not write.
struct OpenGpu {
  std::unique_ptr<SimGpu> sim;  // null for a real GPU
  std::unique_ptr<TelemetrySource> source;
  ClockControl* control = nullptr;
};

struct OpenGpus {
  std::vector<OpenGpu> gpus;
  std::string driver_version;
  std::vector<std::string> notes;  // GPUs that could not be opened, and why
};

// The real GPUs that `choice` names (all when empty), in its order, each on a thread of its own.
// Errors: those of NVML; gpu_stuck when the driver does not answer; not_found when there is no GPU
// or none of that name.
Result<OpenGpus> open_nvml_gpus(const std::string& choice);

// Simulated GPUs with their workload not yet started. Errors: not_found for the chip or workload.
struct SimSetup {
  const SimChip* chip = nullptr;
  Workload workload;
};
Result<SimSetup> find_sim_setup(const SimOptionsOfCli& options);
// Those that `choice` names, all when empty. Errors: as select_gpus().
Result<OpenGpus> open_sim_gpus(const SimSetup& setup, const SimOptionsOfCli& options,
                               const std::string& choice, Clock& clock);

}  // namespace derate::cli
