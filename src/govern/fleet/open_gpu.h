// The GPUs that a program has opened, and how a loop that cannot wait opens them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/backend.h"

namespace derate {

struct OpenGpus {
  std::vector<OpenGpu> gpus;
  std::string driver_version;
  std::vector<std::string> notes;  // GPUs that could not be opened, and why
};

// Begins to open the GPUs of a choice; what it returns is asked until it has the outcome.
using OpeningPoll = std::function<std::optional<Result<OpenGpus>>()>;
using OpenFleet = std::function<OpeningPoll(const std::string& choice)>;

}  // namespace derate
