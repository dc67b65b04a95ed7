// CUDA_VISIBLE_DEVICES as NVIDIA's driver reads it. docs/run.md has the table of cases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/seen_gpu.h"

namespace derate {

// The positions in `seen.gpus` that a CUDA program sees with this value, in the order of the value,
// each once; a MIG instance stands for its GPU. Empty: the program sees no GPU.
//
// `device_order` is the value of CUDA_DEVICE_ORDER, empty where it is not set. Numbers count in
// PCI's order where that is PCI_BUS_ID or all GPUs are of one kind. Errors: invalid_argument where
// numbers pick some of several GPUs and CUDA's order of them is not known; the message names ways
// out.
Result<std::vector<int>> cuda_visible_gpus(std::string_view value, std::string_view device_order,
                                           const SeenGpus& seen);

}  // namespace derate
