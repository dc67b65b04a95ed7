// Products of 16 x 16 fragments that stay in registers, one after the other.
#include "heater.h"

#include <cuda_fp16.h>
#include <mma.h>

#include <deque>

#include "cuda.h"

namespace derate::bench_cuda {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWarps = 4;        // a block: one for each scheduler
constexpr int kFragments = 4;    // of A, of B and of sums a warp: as many products at a time
constexpr int kF = 16;           // side of a fragment
constexpr int kRounds = 320000;  // a kernel: about 36 ms on an H200
constexpr std::size_t kQueued = 4;
constexpr std::size_t kOperands = std::size_t{kWarps} * kFragments * kF * kF;  // of A; B as many

__global__ void __launch_bounds__(32 * kWarps)
    heat(const __half* a_values, const __half* b_values, float* out) {
  wmma::fragment<wmma::matrix_a, kF, kF, kF, __half, wmma::row_major> a[kFragments];
  wmma::fragment<wmma::matrix_b, kF, kF, kF, __half, wmma::row_major> b[kFragments];
  wmma::fragment<wmma::accumulator, kF, kF, kF, float> sums[kFragments];
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    wmma::load_matrix_sync(a[i], a_values + (warp * kFragments + i) * kF * kF, kF);
    wmma::load_matrix_sync(b[i], b_values + (warp * kFragments + i) * kF * kF, kF);
    wmma::fill_fragment(sums[i], 0.0f);
  }
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int x = 0; x < kFragments; ++x)
#pragma unroll
      for (int y = 0; y < kFragments; ++y) wmma::mma_sync(sums[y], a[y], b[x], sums[y]);
  for (int i = 1; i < kFragments; ++i)
    for (int k = 0; k < sums[0].num_elements; ++k) sums[0].x[k] += sums[i].x[k];
  float* const tile = out + (std::size_t(blockIdx.x) * kWarps + warp) * kF * kF;
  wmma::store_matrix_sync(tile, sums[0], kF, wmma::mem_row_major);
}

}  // namespace

struct Heater::Impl {
  std::uint64_t seed;
  unsigned blocks = 0;
  std::size_t shared_bytes = 0;
  Stream stream = nullptr;
  std::shared_ptr<__half[]> a, b;
  std::shared_ptr<float[]> out;
  Event taken;               // up to here take() has told
  std::deque<Event> queued;  // one a kernel
};

Heater::Heater(double share, std::uint64_t seed) : impl_(new Impl{seed}) {
  int device = 0, lowest = 0, highest = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  cudaDeviceProp gpu{};
  CUDA_CHECK(cudaGetDeviceProperties(&gpu, device));
  const int blocks = static_cast<int>(std::lround(share * gpu.multiProcessorCount));
  impl_->blocks = blocks < 1 ? 1 : blocks;
  // Half of a multiprocessor's shared memory, unused: two blocks never share one.
  impl_->shared_bytes = gpu.sharedMemPerMultiprocessor / 2;
  CUDA_CHECK(cudaFuncSetAttribute(heat, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(impl_->shared_bytes)));
  impl_->a = device_array<__half>(kOperands);
  impl_->b = device_array<__half>(kOperands);
  impl_->out = device_array<float>(impl_->blocks * kWarps * kF * kF);
  // Before the workload's blocks, or it would wait for room at each kernel's begin.
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&impl_->stream, cudaStreamNonBlocking, highest));
  fill(1);
  impl_->taken = recorded_event(impl_->stream, cudaEventDefault);
}

Heater::~Heater() { cudaStreamDestroy(impl_->stream); }  // which lets the queue run dry

void Heater::fill(double share) {
  const Uniform a{impl_->seed, -1, 1}, b{impl_->seed + 1, -1, 1};
  fill_array(impl_->a, kOperands, mixed(a, share), impl_->stream);
  fill_array(impl_->b, kOperands, mixed(b, share), impl_->stream);
}

void Heater::top_up() {
  std::size_t waiting = 0;
  for (const Event& event : impl_->queued)
    waiting += cudaEventQuery(event.get()) == cudaErrorNotReady;
  for (; waiting < kQueued; ++waiting) {
    heat<<<impl_->blocks, 32 * kWarps, impl_->shared_bytes, impl_->stream>>>(
        impl_->a.get(), impl_->b.get(), impl_->out.get());
    CUDA_CHECK(cudaGetLastError());
    impl_->queued.push_back(recorded_event(impl_->stream, cudaEventDefault));
  }
}

Heater::Done Heater::take() {
  constexpr double kRoundFlop = 2.0 * kFragments * kFragments * kF * kF * kF;  // a warp
  Done done;
  while (!impl_->queued.empty() && cudaEventQuery(impl_->queued.front().get()) == cudaSuccess) {
    float milliseconds = 0;
    CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, impl_->taken.get(), impl_->queued.front().get()));
    done.seconds += 1e-3 * milliseconds;
    done.tflop += 1e-12 * kRoundFlop * kRounds * kWarps * impl_->blocks;
    impl_->taken = std::move(impl_->queued.front());
    impl_->queued.pop_front();
  }
  return done;
}

}  // namespace derate::bench_cuda
