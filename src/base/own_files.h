// The other files of this program's own build or installation.
#pragma once

#include <string>

#include "base/result.h"

namespace derate {

// Path of "derate" or "derated", which lie beside this program or in the sbin beside its bin.
// Errors: not_found.
Result<std::string> own_program(const std::string& name);

// libnvidia-ml.so.1 of the simulation: beside the program in a build, in lib/derate where it is
// installed. Errors: not_found.
Result<std::string> own_nvml_library();
// libdcgm.so.4 of the simulation, as above.
Result<std::string> own_dcgm_library();

// libderate_progress.so (progress/): in the folder of its name beside the program in a build, in
// lib/derate where it is installed. Errors: not_found; there is none for this processor.
Result<std::string> own_progress_library();

}  // namespace derate
