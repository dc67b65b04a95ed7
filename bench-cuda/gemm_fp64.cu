// C = A B in FP64 on the ordinary units: a block makes 128 x 64 of C, a thread 8 x 4;
// the next slice of A and B comes while one is multiplied.
#include <cuda_pipeline.h>

#include "cuda.h"
#include "square_product.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr int kTileDown = 128, kTileAcross = 64;
constexpr int kSlice = 8;     // of the inner dimension, at a time
constexpr int kThreads = 16;  // down and across; a thread has pairs of elements of C, so far apart
constexpr int kDown = kTileDown / kThreads, kAcross = kTileAcross / kThreads;
constexpr int kPad = 2;  // against bank conflicts; pairs stay aligned

struct Slices {
  double a[kSlice][kTileDown + kPad];  // transposed: a thread reads its rows in pairs
  double b[kSlice][kTileAcross];
};

__device__ void fetch(Slices& to, const double* a, const double* b, int side, int thread) {
  for (int i = thread; i < kSlice * kTileDown; i += kThreads * kThreads)
    __pipeline_memcpy_async(&to.a[i % kSlice][i / kSlice],
                            &a[std::size_t(i / kSlice) * side + i % kSlice], sizeof(double));
  for (int i = thread; i < kSlice * kTileAcross; i += kThreads * kThreads)
    __pipeline_memcpy_async(&to.b[i / kTileAcross][i % kTileAcross],
                            &b[std::size_t(i / kTileAcross) * side + i % kTileAcross],
                            sizeof(double));
  __pipeline_commit();
}

// A thread's numbers of one slice's row: pairs that are kThreads pairs apart.
template <int count>
__device__ void take(double (&to)[count], const double* row, int first) {
#pragma unroll
  for (int i = 0; i < count; i += 2) {
    const double2 pair = *reinterpret_cast<const double2*>(&row[2 * first + i * kThreads]);
    to[i] = pair.x;
    to[i + 1] = pair.y;
  }
}

__global__ void __launch_bounds__(kThreads* kThreads, 2)
    gemm(const double* a, const double* b, double* c, int side) {
  __shared__ __align__(16) Slices slices[2];
  const int x = threadIdx.x, y = threadIdx.y, thread = y * kThreads + x;
  const std::size_t top = std::size_t(blockIdx.y) * kTileDown, left = blockIdx.x * kTileAcross;
  a += top * side;
  b += left;
  double sums[kDown][kAcross] = {};
  fetch(slices[0], a, b, side, thread);
  for (int k = 0; k < side; k += kSlice) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this slice is there for all, and all have done with the one before
    const Slices& now = slices[k / kSlice % 2];
    if (k + kSlice < side)
      fetch(slices[k / kSlice % 2 ^ 1], a + k + kSlice, b + std::size_t(k + kSlice) * side, side,
            thread);
#pragma unroll
    for (int inner = 0; inner < kSlice; ++inner) {
      double down[kDown], across[kAcross];
      take(down, now.a[inner], y);
      take(across, now.b[inner], x);
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) sums[i][j] += down[i] * across[j];
    }
  }
  for (int i = 0; i < kDown; ++i)
    for (int j = 0; j < kAcross; ++j)
      c[(top + 2 * y + i / 2 * 2 * kThreads + i % 2) * side + left + 2 * x + j / 2 * 2 * kThreads +
        j % 2] = sums[i][j];
}

}  // namespace

Job prepare_gemm_fp64(const JobOptions& options) {
  const auto multiply = [](const double* a, const double* b, double* c, int side, Stream stream) {
    const dim3 blocks(side / kTileAcross, side / kTileDown), threads(kThreads, kThreads);
    gemm<<<blocks, threads, 0, stream>>>(a, b, c, side);
  };
  const auto exact = [](float value) { return double{value}; };
  // 2^-53 a step, and the orders of summing are the same.
  return prepare_product<double, double>(options, multiply, exact, 1e-12);
}

}  // namespace derate::bench_cuda
