// The table of workloads, and what makes each: one .cu file of the same name.
#pragma once

#include <string_view>
#include <vector>

#include "workload.h"

namespace derate::bench_cuda {

const std::vector<Workload>& workloads();

// Each takes memory on the current GPU, runs one step, and compares what it left with the CPU's
// reference. Throws Failure when a CUDA call fails.
Job prepare_black_scholes(const JobOptions& options);
Job prepare_decode_gemv(const JobOptions& options);
Job prepare_device_copy(const JobOptions& options);
Job prepare_fft_convolution(const JobOptions& options);
Job prepare_gemm_fp64(const JobOptions& options);
Job prepare_gemm_tensor(const JobOptions& options);
Job prepare_launch_bound(const JobOptions& options);
Job prepare_reduction(const JobOptions& options);
Job prepare_sort(const JobOptions& options);
Job prepare_stream_triad(const JobOptions& options);
Job prepare_transpose(const JobOptions& options);
Job prepare_two_phase(const JobOptions& options);
Job prepare_walsh(const JobOptions& options);

}  // namespace derate::bench_cuda
