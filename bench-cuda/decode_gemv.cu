// A token through 16 square layers, as a language model decodes for one user: each layer's FP16
// weights are read once, and the next layer waits for them.
#include <cuda_fp16.h>

#include <cmath>

#include "cuda.h"
#include "reference.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr int kLayers = 16;
constexpr int kRows = 8;      // a block: one warp each
constexpr int kHalves = 8;    // a lane at a time: 16 bytes
constexpr int kSamples = 16;  // rows a layer

__device__ float dot8(uint4 weights, const float4* x) {
  const __half2* pairs = reinterpret_cast<const __half2*>(&weights);
  const float2 a = __half22float2(pairs[0]), b = __half22float2(pairs[1]),
               c = __half22float2(pairs[2]), d = __half22float2(pairs[3]);
  const float4 low = x[0], high = x[1];
  return a.x * low.x + a.y * low.y + b.x * low.z + b.y * low.w + c.x * high.x + c.y * high.y +
         d.x * high.z + d.y * high.w;
}

__global__ void __launch_bounds__(32 * kRows)
    layer(const uint4* weights, const float4* x, float* y, int width) {
  const int row = blockIdx.x * kRows + threadIdx.x / 32, lane = threadIdx.x % 32;
  const int steps = width / kHalves;
  weights += std::size_t(row) * steps;
  float sum = 0;
#pragma unroll 8
  for (int i = lane; i < steps; i += 32) sum += dot8(__ldcs(&weights[i]), &x[2 * i]);
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(~0u, sum, distance);
  if (lane == 0) y[row] = sum;
}

}  // namespace

Job prepare_decode_gemv(const JobOptions& options) {
  const int width = static_cast<int>(options.size);
  const std::size_t a_layer = std::size_t(width) * width;
  const float bound = std::sqrt(3.0f / width);  // a variance of 1 / width keeps the token's length
  const Uniform values{options.seed, -bound, bound};
  const Uniform first_token{options.seed + 1, -1, 1};
  const auto weights = device_array<__half>(kLayers * a_layer);
  const auto tokens = device_array<float>((kLayers + 1) * std::size_t(width));
  const auto fill = [=](double share, Stream stream) {
    fill_array(weights, kLayers * a_layer, mixed(values, share), stream);
    fill_array(tokens, width, mixed(first_token, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) {
    for (int i = 0; i < kLayers; ++i) {
      float* const x = tokens.get() + std::size_t(i) * width;
      layer<<<width / kRows, 32 * kRows, 0, stream>>>(
          reinterpret_cast<const uint4*>(weights.get() + i * a_layer),
          reinterpret_cast<const float4*>(x), x + width, width);
    }
  };
  Job job{{{"token", 1, step}}, {}, fill};
  run_once(job.phases.front());

  // Each layer against its own input: the errors of one are not another's.
  const auto rounded = [](float value) { return double{__half2float(__float2half(value))}; };
  const auto found = to_host(tokens.get(), (kLayers + 1) * std::size_t(width));
  Comparison comparison;
  for (int i = 0; i < kLayers * kSamples; ++i) {
    const std::size_t x = std::size_t(i / kSamples) * width;
    const std::size_t row = random_bits(options.seed + 2, i) % width;
    const std::size_t first = i / kSamples * a_layer + row * width;
    comparison.add(found[x + width + row],
                   dot(
                       width, [&](std::size_t k) { return rounded(values(first + k)); },
                       [&](std::size_t k) { return double{found[x + k]}; }));
  }
  job.check = comparison.against(1e-5);  // FP32 sums of some hundred products a lane
  return job;
}

}  // namespace derate::bench_cuda
