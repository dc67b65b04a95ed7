// C = A B on tensor cores through WMMA, FP16 in and FP32 accumulated. A block makes a tile of
// 128 x 128 of C; while it multiplies one slice of A and B, the next is on its way.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#include "cuda.h"
#include "square_product.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kTile = 128;             // of C, a block
constexpr int kSlice = 32;             // of the inner dimension, at a time
constexpr int kThreads = 256;          // 8 warps: 2 down, 4 across
constexpr int kDown = 4, kAcross = 2;  // fragments a warp: 64 x 32 of C
constexpr int kF = 16;                 // side of a fragment
constexpr int kPad = 8;                // halves a row, against bank conflicts

struct Slices {
  __half a[kTile][kSlice + kPad];
  __half b[kSlice][kTile + kPad];
};

// Copies a rows x columns part into shared memory, 16 bytes a thread at a time, in the background.
template <int rows, int columns>
__device__ void fetch(__half (*to)[columns + kPad], const __half* from, int stride) {
  constexpr int a_row = columns / 8;
#pragma unroll
  for (int i = threadIdx.x; i < rows * a_row; i += kThreads)
    __pipeline_memcpy_async(&to[i / a_row][i % a_row * 8],
                            &from[std::size_t(i / a_row) * stride + i % a_row * 8], 16);
}

using Accumulator = wmma::fragment<wmma::accumulator, kF, kF, kF, float>;

__device__ void multiply(const Slices& slices, Accumulator (&c)[kDown][kAcross], int top,
                         int left) {
#pragma unroll
  for (int k = 0; k < kSlice; k += kF) {
    wmma::fragment<wmma::matrix_a, kF, kF, kF, __half, wmma::row_major> a[kDown];
    wmma::fragment<wmma::matrix_b, kF, kF, kF, __half, wmma::row_major> b[kAcross];
#pragma unroll
    for (int y = 0; y < kDown; ++y)
      wmma::load_matrix_sync(a[y], &slices.a[top + y * kF][k], kSlice + kPad);
#pragma unroll
    for (int x = 0; x < kAcross; ++x)
      wmma::load_matrix_sync(b[x], &slices.b[k][left + x * kF], kTile + kPad);
#pragma unroll
    for (int y = 0; y < kDown; ++y)
#pragma unroll
      for (int x = 0; x < kAcross; ++x) wmma::mma_sync(c[y][x], a[y], b[x], c[y][x]);
  }
}

__global__ void __launch_bounds__(kThreads)
    gemm(const __half* a, const __half* b, float* c, int side) {
  __shared__ __align__(16) Slices slices[2];
  const int warp = threadIdx.x / 32;
  const int top = warp / 4 * kDown * kF, left = warp % 4 * kAcross * kF;
  a += std::size_t(blockIdx.y) * kTile * side;
  b += blockIdx.x * kTile;
  const auto fetch_slice = [&](int k) {
    Slices& to = slices[k / kSlice % 2];
    fetch<kTile, kSlice>(to.a, a + k, side);
    fetch<kSlice, kTile>(to.b, b + std::size_t(k) * side, side);
    __pipeline_commit();
  };

  Accumulator sums[kDown][kAcross];
  for (auto& row : sums)
    for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);
  fetch_slice(0);
  for (int k = 0; k < side; k += kSlice) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this slice is there for all, and all have done with the one before
    if (k + kSlice < side) fetch_slice(k + kSlice);
    multiply(slices[k / kSlice % 2], sums, top, left);
  }
  c += (std::size_t(blockIdx.y) * kTile + top) * side + blockIdx.x * kTile + left;
  for (int y = 0; y < kDown; ++y)
    for (int x = 0; x < kAcross; ++x)
      wmma::store_matrix_sync(c + std::size_t(y) * kF * side + x * kF, sums[y][x], side,
                              wmma::mem_row_major);
}

}  // namespace

Job prepare_gemm_tensor(const JobOptions& options) {
  const auto multiply = [](const __half* a, const __half* b, float* c, int side, Stream stream) {
    gemm<<<dim3(side / kTile, side / kTile), kThreads, 0, stream>>>(a, b, c, side);
  };
  const auto rounded = [](float value) { return double{__half2float(__float2half(value))}; };
  // FP16 products are exact in FP32; the sums lose some 2^-24 of the largest a step.
  return prepare_product<__half, float>(options, multiply, rounded, 1e-3);
}

}  // namespace derate::bench_cuda
