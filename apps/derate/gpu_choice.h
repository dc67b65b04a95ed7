// The choice of the GPUs that a command started here works on: by option, or by the command's
// environment.
#pragma once

#include <optional>
#include <string>

#include "command_options.h"

namespace derate::cli {

// As open_gpus() takes it: the ones that were named, or that are the command's own by its
// environment (integ/own_gpus.h), which names hardware alone. Empty: nothing says which. Errors:
// those of own_gpus().
Result<std::optional<std::string>> chosen_gpus(const GpuChoice& choice,
                                               const SimCliOptions& sim = {});

}  // namespace derate::cli
