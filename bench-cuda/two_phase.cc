// A compute phase and a memory phase in turns, out of two other workloads. A pass is one step of
// the phase that it falls in: with default sizes about as long in both on an H100.
#include <algorithm>

#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr std::int64_t kTriadNumbers = 1 << 26;

Phase phase_of(const Job& job, const char* name) { return {name, 1, job.phases.front().step}; }

}  // namespace

Job prepare_two_phase(const JobOptions& options) {
  const Job compute = prepare_gemm_tensor(options);
  const Job memory = prepare_stream_triad({kTriadNumbers, options.seed + 3});
  const auto share = [](const Check& check) { return check.largest_error / check.allowed_error; };
  const bool compute_is_worse = share(compute.check) > share(memory.check);
  return {{phase_of(compute, "compute"), phase_of(memory, "memory")},
          compute_is_worse ? compute.check : memory.check,
          [compute, memory](double share, Stream stream) {
            compute.fill(share, stream);
            memory.fill(share, stream);
          }};
}

}  // namespace derate::bench_cuda
