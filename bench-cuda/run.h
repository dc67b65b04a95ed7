// A workload on one GPU from its check to its summary, told on standard output.
#pragma once

#include "options.h"

namespace derate::bench_cuda {

// SIGINT and SIGTERM are kept back from here on, for run_workload to find. Call it before CUDA
// starts threads, which inherit that.
void hold_signals();

// Prints header, rates and summary. Returns the exit code: 0, or 128 and the signal that ended it.
// Throws Failure: a wrong result, before anything is printed; no such GPU; a failed CUDA call.
int run_workload(const Workload& workload, const Options& options);

}  // namespace derate::bench_cuda
