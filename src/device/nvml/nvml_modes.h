// Settings of other tools, as NVML gives them (core/gpu_modes.h).
#pragma once

#include "core/gpu_modes.h"
#include "device/nvml/nvml_abi.h"

namespace derate {

// What the driver does not offer, or gives a value for that it does not define, stays empty.
GpuModes read_modes(const NvmlFunctions& nvml, nvml::Device device);

}  // namespace derate
