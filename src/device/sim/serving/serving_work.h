// An engine as the work of a simulated GPU (SimWork): its steps take time and power by the clock
// that is. Iterations end and begin within the GPU's steps of 10 ms; the GPU's power is that of the
// iteration which runs when its step begins.
#pragma once

#include <memory>
#include <vector>

#include "core/serving_state.h"
#include "device/sim/serving/serving_engine.h"
#include "device/sim/sim_work.h"

namespace derate {

// The board's joules while a step ran.
struct ServingEnergy {
  double steps_j = 0, prompts_j = 0;
};

class ServingWork final : public SimWork {
 public:
  // The chip and the requests outlive it. Times of requests count from here.
  ServingWork(const ServingLaw& law, const SimChip& chip, const EngineLimits& limits,
              std::span<const ServingRequest> requests);

  bool working() const override { return load_.has_value(); }
  const OperatingPoint& at(std::size_t clock) const override;
  // Power is as measured.
  std::optional<double> drift() const override { return std::nullopt; }
  void work(double done, double step_s) override;
  void wait(double step_s) override;

  const ServingEngine& engine() const { return engine_; }
  const ServingEnergy& energy() const { return energy_; }

 private:
  void begin(double now_s);
  double seconds_at(std::size_t clock) const { return models_[clock].seconds(*load_); }

  std::vector<StepModel> models_;  // by the chip's clocks
  double top_seconds_ = 0;         // of the step at the highest clock: rate 1
  ServingEngine engine_;
  std::optional<StepLoad> load_;  // of the step that runs
  double left_ = 0;               // of it, seconds at the highest clock
  double now_s_ = 0;
  double owed_s_ = 0;  // before now_s_, in which the step that runs was not worked off
  ServingEnergy energy_;
  mutable std::size_t clock_ = 0;  // looked at last: the one that runs
  mutable OperatingPoint point_;
};

// As vLLM would show it at that time.
ServingState serving_state(const EngineCounters& counters, Instant time);

}  // namespace derate
