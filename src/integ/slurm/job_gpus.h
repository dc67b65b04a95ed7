// The GPUs of a Slurm job, by UUID, with proof.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/seen_gpu.h"

namespace derate {

// Returns the UUIDs of the GPUs at these places of the node's list. `minors`: of each GPU of the
// list; empty: its device file is none of the NVIDIA driver's. `seen`: the whole node's GPUs.
//
// Under ConstrainDevices (`constrained`) a job can open the device files of its places alone, which
// is the proof. Without it CUDA counts a job's numbers among all GPUs of the node in the order of
// the PCI bus, or of their speed: the proof is that all GPUs are of one model and that both ways
// lead to the same GPU.
// Errors: not_supported for what cannot be proven, or for a GPU in MIG mode, whose other instances
// may be another job's.
Result<std::vector<std::string>> job_gpus(std::span<const int> places,
                                          std::span<const std::optional<int>> minors,
                                          const SeenGpus& seen, bool constrained);

}  // namespace derate
