// The parts of a GPU that a program has opened: what reads it, what writes to it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/telemetry_source.h"

namespace derate {

class ClockControl;
class SimGpu;

// One GPU as the programs use it.
struct OpenGpu {
  std::shared_ptr<SimGpu> sim;  // what `source` stands on; null for a real GPU
  std::unique_ptr<TelemetrySource> source;
  ClockControl* control = nullptr;
};

struct OpenGpus {
  std::vector<OpenGpu> gpus;
  std::string driver_version;
  std::vector<std::string> notes;  // GPUs that could not be opened, and why
};

// Begins to open the GPUs of a choice; what it returns is asked until it has the outcome.
using OpeningPoll = std::function<std::optional<Result<OpenGpus>>()>;
using OpenFleet = std::function<OpeningPoll(const std::string& choice)>;

}  // namespace derate
