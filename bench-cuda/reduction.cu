// The sum of a long vector in one kernel: each block sums its share, the whole grid meets, and the
// first block sums what the others left.
#include <cooperative_groups.h>

#include "cuda.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 256;

// The sum over the block, in its first thread.
__device__ float block_sum(float value) {
  __shared__ float of_warps[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_down_sync(~0u, value, distance);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  if (threadIdx.x == 0)
    for (const float part : of_warps) sum += part;
  __syncthreads();
  return sum;
}

__global__ void reduce(const float4* in, std::size_t quads, float* parts, float* out) {
  float sum = 0;
  const std::size_t first = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
  for (std::size_t i = first; i < quads; i += std::size_t{gridDim.x} * kThreads) {
    const float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;

  cg::this_grid().sync();
  if (blockIdx.x != 0) return;
  sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) sum += parts[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

// As many blocks as run at once: more would wait for each other for ever.
unsigned resident_blocks() {
  int device = 0, processors = 0, a_processor = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&a_processor, reduce, kThreads, 0));
  return processors * a_processor;
}

}  // namespace

Job prepare_reduction(const JobOptions& options) {
  const std::size_t count = options.size;
  const unsigned blocks = resident_blocks();
  const Uniform values{options.seed, 0, 1};
  const auto in = device_array<float>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(in, count, mixed(values, share), stream);
  };
  fill(1, nullptr);
  const auto parts = device_array<float>(blocks), out = device_array<float>(1);
  const auto step = [=](Stream stream) {
    auto* quads = reinterpret_cast<const float4*>(in.get());
    std::size_t quad_count = count / 4;
    float *parts_at = parts.get(), *out_at = out.get();
    void* arguments[] = {&quads, &quad_count, &parts_at, &out_at};
    CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(reduce), dim3(blocks),
                                           dim3(kThreads), arguments, 0, stream));
  };
  Job job{{{"reduce", 4e-9 * count, step}}, {}, fill};
  run_once(job.phases.front());

  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += values(i);
  Comparison comparison;
  comparison.add(to_host(out.get(), 1).front(), sum);
  job.check = comparison.against(1e-5);  // FP32 sums of some hundred numbers a thread
  return job;
}

}  // namespace derate::bench_cuda
