// One tiny kernel after the other, each waiting for the one before: what is measured is how fast
// work can be handed over, by the processor and by the GPU's front end.
#include "cuda.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr int kChecked = 1000;

// Numerical Recipes' linear congruential generator: a lost or doubled launch shows in every number.
DERATE_HOST_DEVICE std::uint32_t next_number(std::uint32_t state) {
  return 1664525u * state + 1013904223u;
}

struct Seeds {
  std::uint64_t seed;
  DERATE_HOST_DEVICE std::uint32_t operator()(std::uint64_t i) const {
    return static_cast<std::uint32_t>(random_bits(seed, i));
  }
};

__global__ void advance(std::uint32_t* states) {
  states[threadIdx.x] = next_number(states[threadIdx.x]);
}

}  // namespace

Job prepare_launch_bound(const JobOptions& options) {
  const unsigned threads = static_cast<unsigned>(options.size);
  const Seeds seeds{options.seed};
  const auto states = filled_array<std::uint32_t>(threads, seeds);
  const auto step = [=](Stream stream) { advance<<<1, threads, 0, stream>>>(states.get()); };
  Job job{{{"launch", 1, step}}, {}, {}};
  for (int i = 1; i < kChecked; ++i) step(nullptr);
  run_once(job.phases.front());

  const auto found = to_host(states.get(), threads);
  Comparison comparison;
  for (unsigned i = 0; i < threads; ++i) {
    std::uint32_t right = seeds(i);
    for (int n = 0; n < kChecked; ++n) right = next_number(right);
    comparison.add(found[i], right);
  }
  job.check = comparison.against(0);
  return job;
}

}  // namespace derate::bench_cuda
