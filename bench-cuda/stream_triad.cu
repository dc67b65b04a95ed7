// McCalpin's STREAM triad in FP64: a = b + s c.
#include "cuda.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr double kScalar = 0.4;
constexpr std::size_t kSamples = 1 << 20;

__global__ void triad(double2* a, const double2* b, const double2* c, std::size_t pairs) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= pairs) return;
  const double2 left = b[i], right = c[i];
  a[i] = make_double2(left.x + kScalar * right.x, left.y + kScalar * right.y);
}

double2* as_pairs(const std::shared_ptr<double[]>& values) {
  return reinterpret_cast<double2*>(values.get());
}

}  // namespace

Job prepare_stream_triad(const JobOptions& options) {
  const std::size_t count = options.size, pairs = count / 2;
  const Uniform left{options.seed, -1, 1}, right{options.seed + 1, -1, 1};
  const auto a = device_array<double>(count), b = device_array<double>(count),
             c = device_array<double>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(b, count, mixed(left, share), stream);
    fill_array(c, count, mixed(right, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) {
    triad<<<blocks_for(pairs, 256), 256, 0, stream>>>(as_pairs(a), as_pairs(b), as_pairs(c), pairs);
  };
  Job job{{{"triad", 24e-9 * count, step}}, {}, fill};
  run_once(job.phases.front());

  const auto sums = to_host(a.get(), count);
  Comparison comparison;
  for (std::size_t i = 0; i < count; i += sample_stride(count, kSamples))
    comparison.add(sums[i], left(i) + kScalar * double{right(i)});
  job.check = comparison.against(1e-15);  // the GPU fuses, the CPU does not: 2^-52 apart at most
  return job;
}

}  // namespace derate::bench_cuda
