// The driver's own copy from device memory to device memory.
#include "cuda.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

struct Words {
  std::uint64_t seed;
  DERATE_HOST_DEVICE std::uint32_t operator()(std::uint64_t i) const {
    return static_cast<std::uint32_t>(random_bits(seed, i));
  }
};

}  // namespace

Job prepare_device_copy(const JobOptions& options) {
  const std::size_t bytes = std::size_t(options.size) << 20, count = bytes / 4;
  const Words words{options.seed};
  const auto from = device_array<std::uint32_t>(count), to = device_array<std::uint32_t>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(from, count, mixed(words, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) {
    CUDA_CHECK(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, stream));
  };
  Job job{{{"copy", 2e-9 * bytes, step}}, {}, fill};
  run_once(job.phases.front());

  const auto copied = to_host(to.get(), count);
  Comparison comparison;
  for (std::size_t i = 0; i < count; ++i) comparison.add(copied[i], words(i));
  job.check = comparison.against(0);
  return job;
}

}  // namespace derate::bench_cuda
