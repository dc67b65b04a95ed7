// Settings of other tools, as NVML gives them (core/gpu_modes.h).
#pragma once

#include "core/gpu_modes.h"
#include "device/nvml/nvml_abi.h"

namespace derate {

// A setting stays empty if the driver does not offer it or gives a value that NVML does not define.
GpuModes read_modes(const NvmlFunctions& nvml, nvml::Device device);

}  // namespace derate
