// A matrix transposed through tiles of shared memory: both sides of device memory see whole lines.
#include "cuda.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr int kTile = 32;
constexpr int kRows = 8;  // of threads: each moves kTile / kRows elements

__global__ void transpose(const float* in, float* out, int side) {
  __shared__ float tile[kTile][kTile + 1];  // one more: a column lies in as many banks
  const int across = blockIdx.x * kTile, down = blockIdx.y * kTile;
  for (int y = threadIdx.y; y < kTile; y += kRows)
    tile[y][threadIdx.x] = in[std::size_t(down + y) * side + across + threadIdx.x];
  __syncthreads();
  for (int y = threadIdx.y; y < kTile; y += kRows)
    out[std::size_t(across + y) * side + down + threadIdx.x] = tile[threadIdx.x][y];
}

}  // namespace

Job prepare_transpose(const JobOptions& options) {
  const int side = static_cast<int>(options.size);
  const std::size_t count = std::size_t(side) * side;
  const Uniform values{options.seed, -1, 1};
  const auto in = device_array<float>(count), out = device_array<float>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(in, count, mixed(values, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) {
    const dim3 blocks(side / kTile, side / kTile), threads(kTile, kRows);
    transpose<<<blocks, threads, 0, stream>>>(in.get(), out.get(), side);
  };
  Job job{{{"transpose", 8e-9 * count, step}}, {}, fill};
  run_once(job.phases.front());

  const auto transposed = to_host(out.get(), count);
  Comparison comparison;
  for (std::size_t i = 0; i < count; ++i)
    comparison.add(transposed[i], values(i % side * side + i / side));
  job.check = comparison.against(0);
  return job;
}

}  // namespace derate::bench_cuda
