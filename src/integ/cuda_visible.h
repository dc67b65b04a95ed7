// CUDA_VISIBLE_DEVICES as NVIDIA's driver reads it. docs/run.md has the table of cases.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/seen_gpu.h"

namespace derate {

// Returns the positions in `seen.gpus` that a CUDA program sees with this value, in the order of
// the value. Of several MIG instances a program sees the first, which stands for its GPU. Empty: it
// sees no GPU.
//
// `device_order` is CUDA_DEVICE_ORDER; empty: it is not set. Numbers count in PCI order if it is
// PCI_BUS_ID or if all GPUs are of one kind; an invalid order hides all. Errors: invalid_argument
// if numbers pick some of several GPUs and CUDA's order is not known, or if an item may mean a GPU
// that does not answer. The message names remedies.
Result<std::vector<int>> cuda_visible_gpus(std::string_view value,
                                           std::optional<std::string_view> device_order,
                                           const SeenGpus& seen);

// Whether the driver accepts the value of CUDA_DEVICE_ORDER. With any other a program sees no GPU,
// also if CUDA_VISIBLE_DEVICES is not set.
bool is_device_order(std::string_view value);

// Whether the value hides every GPU of any machine: it begins with a number below 0.
bool hides_all_gpus(std::string_view value);

}  // namespace derate
