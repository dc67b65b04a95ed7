#include "device/sim/baseline_gpu.h"

namespace derate {

BaselineGpu::BaselineGpu(const SimChip& chip, std::uint64_t seed)
    : gpu_(chip, SimOptions{.seed = seed}) {
  gpu_.lock(chip.sm_clocks.back(), chip.sm_clocks.back());
}

void BaselineGpu::start(const Workload& workload) {
  gpu_.start(workload, Duration::zero());
  energy_at_start_ = gpu_.energy();
}

Twin BaselineGpu::compare(const SimGpu& real, Joules energy) {
  gpu_.advance_to(real.now());
  Twin out;
  const double mine = gpu_.work_done(), theirs = real.work_done();
  if (mine <= 0 || theirs <= 0) return out;
  out.performance = theirs / mine;
  out.energy_saving =
      1 - (energy.value() / theirs) / ((gpu_.energy() - energy_at_start_).value() / mine);
  return out;
}

}  // namespace derate
