// Which real GPUs a command that is started here works on.
#pragma once

#include <optional>
#include <string>

#include "command_options.h"

namespace derate::cli {

// As open_nvml_gpus() takes it: those that were named, or that are the command's own by its
// environment (integ/own_gpus.h). Empty: nobody has said which. Errors: those of own_gpus().
Result<std::optional<std::string>> chosen_gpus(const GpuChoice& choice);

}  // namespace derate::cli
