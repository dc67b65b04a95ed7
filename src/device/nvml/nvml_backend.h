// The machine's NVIDIA GPUs as a back end.
#pragma once

#include <memory>

#include "device/backend.h"
#include "device/nvml/nvml_library.h"
#include "device/nvml/nvml_thread.h"

namespace derate {

// Each GPU is read and set on a thread of its own. A MIG instance's UUID names its GPU, since
// clocks and limits are the whole GPU's. One that hangs while it is opened costs the others 10 s.
// Errors of list(): those of NVML; gpu_stuck and others where no GPU at all could be opened.
Backend nvml_backend(NvmlPatience patience);

// Lists the GPUs of this process's view without opening them. Loading and counting may hang like
// any driver call. A GPU that does not answer within `patience` after that is silent. A GPU that
// returns no_permission belongs to another view: NVML counts it, CUDA does not. Errors: those of
// counting.
Result<SeenGpus> see_nvml_gpus(const std::shared_ptr<const NvmlLibrary>& library,
                               Duration patience);

// One GPU, opened on the calling thread without a call to any other: for a process that may hang.
Result<std::unique_ptr<ClockControl>> open_nvml_to_restore(const std::string& uuid);

}  // namespace derate
