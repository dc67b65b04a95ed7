// A node's list of GPUs as its slurmd has it: the numbers of SLURM_JOB_GPUS are places in this
// list.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// Parses what `slurmd -G` prints (Slurm 22.05 and 26.05, src/interfaces/gres.c), in the order of
// its lines: the device file of each GPU. Empty: no GPU of the node is in gres.conf.
// Errors: bad_data for a line of a GPU without one device file a GPU (File=), as with MIG
// (MultipleFiles=) or Count= alone.
Result<std::vector<std::string>> parse_gres_list(std::string_view text);

// The minor number of a device file of the NVIDIA driver (character device, major 195); empty for
// anything else.
std::optional<int> nvidia_minor(const std::string& path);

}  // namespace derate
