// Settings of other tools as documents have them, for `derate status` and derated.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/gpu_modes.h"

namespace derate {

// Null where the driver offers none of them.
nlohmann::ordered_json modes_json(const GpuModes& modes);

}  // namespace derate
