// The phases of an engine's energy by what a governed run's records have: its metrics, its clock,
// and the energy by counter and power. The truth is in the run (ServingRun).
#pragma once

#include "core/record.h"
#include "signal/serving/phase_energy.h"
#include "telemetry/energy_odometer.h"

namespace derate {

class PhaseWatch {
 public:
  explicit PhaseWatch(Megahertz highest) : highest_(highest) {}

  void see(const Record& record);
  const PhaseEnergies& sums() const { return phases_.sums(); }

 private:
  void take_clock(const Sample& sample);
  void take_metrics(const SharedServingState& state, Joules energy);

  Megahertz highest_;
  EnergyOdometer odometer_;
  EngineWatch engine_;
  PhaseEnergy phases_;
  SharedServingState before_;
  Joules energy_{};
  double shares_ = 0;  // of the highest clock, sum since the metrics before, and of how many
  int clocks_ = 0;
};

}  // namespace derate
