// Work on a simulated GPU: its activity at each clock, and its progress. The GPU accounts its time
// and energy (SimJob).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "device/sim/sim_workload.h"

namespace derate {

// Reference seconds that sums of steps may leave over.
inline constexpr double kWorkResidue = 1e-9;

class SimWork {
 public:
  virtual ~SimWork() = default;
  // Whether it gives the GPU something to do now; else it holds its context and waits.
  virtual bool working() const = 0;
  // What it does at the chip's clock of that index, while it works.
  virtual const OperatingPoint& at(std::size_t clock) const = 0;
  // Its dynamic power now, of what its points say. Empty: their power is as it was measured, so
  // that neither the card's voltage nor leakage is added.
  virtual std::optional<double> drift() const = 0;
  // A step goes by in which it works and does so much (reference seconds).
  virtual void work(double done, double step_s) = 0;
  // A step goes by in which it does not work.
  virtual void wait(double step_s) = 0;
  // Of a job on several GPUs, after a round: whether it waits for the others, and that they are
  // there.
  virtual bool waits_for_others() const { return false; }
  virtual void go_on() {}
};

// Makes the work that a workload describes, which outlives it.
using MakeSimWork = std::function<std::unique_ptr<SimWork>(const Workload&)>;

// Steps of a job: the workload's phases in turn, round and round, each with its gap; or the change
// of its first phase into the second.
std::unique_ptr<SimWork> make_steps(const Workload& workload);

}  // namespace derate
