// A kind of GPUs that Derate can open. Concrete back ends are named in one table
// (apps/common/open_gpus.cc): all else sees the interfaces.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/gpu_id.h"
#include "core/seen_gpu.h"
#include "device/telemetry_source.h"

namespace derate {

class ClockControl;
class SimGpu;

// One GPU as the programs use it.
struct OpenGpu {
  std::shared_ptr<SimGpu> sim;  // what `source` stands on; null for a real GPU
  std::unique_ptr<TelemetrySource> source;
  ClockControl* control = nullptr;  // lives as long as `source`; null: nothing can be set
};

struct BackendCapabilities {
  // GPUs of this machine: a call can hang, the environment of a command names the ones that it
  // uses, and a setting outlives the process that wrote it.
  bool hardware = false;
  bool virtual_time = false;  // the GPUs keep up with any clock
};

struct FoundGpus {
  std::vector<GpuId> ids;  // in the order of the choice
  std::string driver_version;
  std::vector<std::string> notes;  // GPUs that could not be opened, and why
};

struct Backend {
  const char* name = "";  // of what is called: "the NVIDIA driver"
  BackendCapabilities capabilities;
  // Lists the GPUs of this process's view, by all their names; a GPU that does not answer within
  // `patience` is silent. An empty function: the GPUs are not hardware.
  std::function<Result<SeenGpus>(Duration patience)> see = {};
  // The GPUs that a choice names, all when it is empty. Errors: those of the back end; not_found
  // where there is no GPU or none of that name; invalid_argument as select_gpus().
  std::function<Result<FoundGpus>(const std::string& choice)> list;
  // One that list() has found; once.
  std::function<Result<OpenGpu>(const GpuId& id)> open;
};

}  // namespace derate
