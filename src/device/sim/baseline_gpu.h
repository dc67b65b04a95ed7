// Baseline of a simulated GPU: the same chip with the same work at its highest clock, to compare
// performance and energy with.
#pragma once

#include "device/sim/sim_gpu.h"

namespace derate {

// What max-freq would have done with the same work at the same time.
struct Twin {
  double performance = 1;    // work done / the baseline's
  double energy_saving = 0;  // of the energy for the same work
};

class BaselineGpu {
 public:
  BaselineGpu(const SimChip& chip, std::uint64_t seed);

  void start(const Workload& workload);
  // Brought to where `real` stands; `energy` is what `real` has used since the start.
  Twin compare(const SimGpu& real, Joules energy);

 private:
  SimGpu gpu_;
  Joules energy_at_start_{};
};

}  // namespace derate
