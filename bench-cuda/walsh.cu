// Fast Walsh-Hadamard transform: butterflies over far distances in registers, four levels a pass
// over device memory; the last twelve levels within tiles of shared memory.
#include <algorithm>

#include "cuda.h"
#include "reference.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr int kLevels = 4;  // a pass: 16 values a thread
constexpr int kTileLevels = 12;
constexpr int kTile = 1 << kTileLevels;
constexpr int kTileThreads = kTile >> kLevels;
constexpr int kThreads = 256;
constexpr int kSamples = 8;

template <int levels>
__device__ void butterflies(float (&v)[1 << levels]) {
#pragma unroll
  for (int distance = 1; distance < 1 << levels; distance *= 2)
#pragma unroll
    for (int i = 0; i < 1 << levels; ++i)
      if ((i & distance) == 0) {
        const float low = v[i], high = v[i + distance];
        v[i] = low + high;
        v[i + distance] = low - high;
      }
}

// Where thread i finds its first value when its values are `distance` apart.
template <int levels>
__device__ std::size_t first_value(std::size_t i, std::size_t distance) {
  const std::size_t within = i & (distance - 1);
  return ((i - within) << levels) + within;
}

template <int levels>
__global__ void far_levels(const float* in, float* out, std::size_t distance) {
  const std::size_t thread = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  const std::size_t first = first_value<levels>(thread, distance);
  float v[1 << levels];
#pragma unroll
  for (int i = 0; i < 1 << levels; ++i) v[i] = in[first + i * distance];
  butterflies<levels>(v);
#pragma unroll
  for (int i = 0; i < 1 << levels; ++i) out[first + i * distance] = v[i];
}

// A gap after every 16 values keeps neighbours that far apart out of one bank.
__device__ int padded(std::size_t i) { return static_cast<int>(i + (i >> kLevels)); }

__global__ void near_levels(const float* in, float* out) {
  __shared__ float tile[kTile + (kTile >> kLevels)];
  const std::size_t start = std::size_t{blockIdx.x} * kTile;
  for (int i = threadIdx.x; i < kTile; i += kTileThreads) tile[padded(i)] = in[start + i];
  for (int distance = 1; distance < kTile; distance <<= kLevels) {
    __syncthreads();
    const std::size_t first = first_value<kLevels>(threadIdx.x, distance);
    float v[1 << kLevels];
#pragma unroll
    for (int i = 0; i < 1 << kLevels; ++i) v[i] = tile[padded(first + i * distance)];
    butterflies<kLevels>(v);
#pragma unroll
    for (int i = 0; i < 1 << kLevels; ++i) tile[padded(first + i * distance)] = v[i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile; i += kTileThreads) out[start + i] = tile[padded(i)];
}

template <int levels>
void launch_far(const float* in, float* out, std::size_t count, std::size_t distance,
                Stream stream) {
  const unsigned threads = static_cast<unsigned>(std::min<std::size_t>(kThreads, count >> levels));
  const unsigned blocks = static_cast<unsigned>((count >> levels) / threads);
  far_levels<levels><<<blocks, threads, 0, stream>>>(in, out, distance);
}

void transform(const float* in, float* out, std::size_t count, Stream stream) {
  near_levels<<<static_cast<unsigned>(count / kTile), kTileThreads, 0, stream>>>(in, out);
  std::size_t distance = kTile;
  for (; distance << kLevels <= count; distance <<= kLevels)
    launch_far<kLevels>(out, out, count, distance, stream);
  if (distance << 3 == count) launch_far<3>(out, out, count, distance, stream);
  if (distance << 2 == count) launch_far<2>(out, out, count, distance, stream);
  if (distance << 1 == count) launch_far<1>(out, out, count, distance, stream);
}

}  // namespace

Job prepare_walsh(const JobOptions& options) {
  const std::size_t count = options.size;
  const auto in = device_array<float>(count), out = device_array<float>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(in, count, mixed(Uniform{options.seed, -1, 1}, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) { transform(in.get(), out.get(), count, stream); };
  Job job{{{"transform", 1e-9 * count, step}}, {}, fill};
  run_once(job.phases.front());

  const auto input = to_host(in.get(), count), transformed = to_host(out.get(), count);
  Comparison comparison;
  for (int i = 0; i < kSamples; ++i) {
    const std::size_t k = random_bits(options.seed + 1, i) % count;
    comparison.add(transformed[k], walsh_at(input, k));
  }
  job.check = comparison.against(1e-4);  // some 30 FP32 additions deep
  return job;
}

}  // namespace derate::bench_cuda
