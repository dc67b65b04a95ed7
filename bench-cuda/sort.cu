// Batcher's bitonic network: blocks sort tiles in shared memory, then ever longer runs are merged,
// far distances by a kernel each, near ones in shared memory again.
#include <algorithm>

#include "cuda.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr unsigned kTile = 2048;  // keys a block, two a thread

struct Keys {
  std::uint64_t seed;
  DERATE_HOST_DEVICE std::uint32_t operator()(std::uint64_t i) const {
    return static_cast<std::uint32_t>(random_bits(seed, i));
  }
};

__device__ void order(std::uint32_t& low, std::uint32_t& high, bool ascending) {
  if ((low > high) != ascending) return;
  const std::uint32_t swapped = low;
  low = high;
  high = swapped;
}

// Pair i at this distance begins here.
__device__ unsigned first_of_pair(unsigned i, unsigned distance) {
  return 2 * i - (i & (distance - 1));
}

// Merges the tile's part of runs of `run` keys; every second run is to descend.
__device__ void merge_in_tile(std::uint32_t* tile, unsigned pair, unsigned run, unsigned distance) {
  for (; distance > 0; distance /= 2) {
    __syncthreads();
    const unsigned low = first_of_pair(threadIdx.x, distance);
    order(tile[low], tile[low + distance], (2 * pair & run) == 0);
  }
}

// From runs of `first_run` keys to runs of `last_run`, as far as that happens within tiles.
__global__ void sort_tiles(const std::uint32_t* in, std::uint32_t* out, unsigned first_run,
                           unsigned last_run) {
  __shared__ std::uint32_t tile[kTile];
  const unsigned start = blockIdx.x * kTile, here = threadIdx.x, half = kTile / 2;
  tile[here] = in[start + here];
  tile[here + half] = in[start + here + half];
  for (unsigned run = first_run; run != 2 * last_run; run *= 2)
    merge_in_tile(tile, start / 2 + here, run, min(run / 2, half));
  __syncthreads();
  out[start + here] = tile[here];
  out[start + here + half] = tile[here + half];
}

__global__ void merge_far(std::uint32_t* keys, unsigned run, unsigned distance) {
  const unsigned pair = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned low = first_of_pair(pair, distance);
  order(keys[low], keys[low + distance], (2 * pair & run) == 0);
}

void sort(const std::uint32_t* in, std::uint32_t* out, unsigned count, Stream stream) {
  constexpr unsigned threads = kTile / 2;
  const unsigned blocks = count / kTile;
  sort_tiles<<<blocks, threads, 0, stream>>>(in, out, 2, kTile);
  for (unsigned run = 2 * kTile; run <= count; run *= 2) {
    for (unsigned distance = run / 2; distance >= kTile; distance /= 2)
      merge_far<<<blocks, threads, 0, stream>>>(out, run, distance);
    sort_tiles<<<blocks, threads, 0, stream>>>(out, out, run, run);
  }
}

}  // namespace

Job prepare_sort(const JobOptions& options) {
  const unsigned count = static_cast<unsigned>(options.size);
  const auto in = device_array<std::uint32_t>(count), out = device_array<std::uint32_t>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(in, count, mixed(Keys{options.seed}, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) { sort(in.get(), out.get(), count, stream); };
  Job job{{{"sort", 1e-9 * count, step}}, {}, fill};
  run_once(job.phases.front());

  auto right = to_host(in.get(), count);
  std::sort(right.begin(), right.end());
  const auto sorted = to_host(out.get(), count);
  Comparison comparison;
  for (std::size_t i = 0; i < count; ++i) comparison.add(sorted[i], right[i]);
  job.check = comparison.against(0);
  return job;
}

}  // namespace derate::bench_cuda
