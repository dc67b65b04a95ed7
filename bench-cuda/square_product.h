// What the workloads that multiply square matrices have in common. For .cu files only.
#pragma once

#include "cuda.h"
#include "reference.h"

namespace derate::bench_cuda {

// A job that computes C = A B of the GPU's memory. `multiply(a, b, c, side, stream)` queues it;
// `exact` is what the GPU has of an input's value, for the check of 256 elements.
template <class In, class Out, class Multiply, class Exact>
Job prepare_product(const JobOptions& options, Multiply multiply, Exact exact,
                    double allowed_error) {
  constexpr int kSamples = 256;
  const int side = static_cast<int>(options.size);
  const std::size_t count = std::size_t(side) * side;
  const Uniform a_values{options.seed, -1, 1}, b_values{options.seed + 1, -1, 1};
  const auto a = device_array<In>(count), b = device_array<In>(count);
  const auto c = device_array<Out>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(a, count, mixed(a_values, share), stream);
    fill_array(b, count, mixed(b_values, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) { multiply(a.get(), b.get(), c.get(), side, stream); };
  Job job{{{"multiply", 2e-12 * side * count, step}}, {}, fill};
  run_once(job.phases.front());

  const auto product = to_host(c.get(), count);
  Comparison comparison;
  for (int i = 0; i < kSamples; ++i) {
    const std::size_t at = random_bits(options.seed + 2, i) % count, row = at / side * side;
    comparison.add(product[at],
                   dot(
                       side, [&](std::size_t k) { return exact(a_values(row + k)); },
                       [&](std::size_t k) { return exact(b_values(k * side + at % side)); }));
  }
  job.check = comparison.against(allowed_error);
  return job;
}

}  // namespace derate::bench_cuda
